/* Counts the primes below N by a segmented sieve of Eratosthenes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parameters.h"

static long small_primes(long root, long *primes) {
    char *composite = calloc(root + 1, 1);
    long count = 0;
    for (long n = 2; n <= root; n++) {
        if (composite[n]) continue;
        primes[count++] = n;
        for (long m = n * n; m <= root; m += n) composite[m] = 1;
    }
    free(composite);
    return count;
}

int main(int argc, char **argv) {
    long limit = argc > 1 ? atol(argv[1]) : 0, found = 0;
    long root = (long)sqrt((double)limit) + 1;
    long *primes = malloc((root + 1) * sizeof(long));
    long count = small_primes(root, primes);
    char *segment = malloc(SEGMENT_BYTES);
    for (long low = 2; low < limit; low += SEGMENT_BYTES) {
        long high = low + SEGMENT_BYTES < limit ? low + SEGMENT_BYTES : limit;
        memset(segment, 1, SEGMENT_BYTES);
        for (long n = 0; n < count && primes[n] * primes[n] < high; n++) {
            long first = (low + primes[n] - 1) / primes[n] * primes[n];
            if (first < primes[n] * primes[n]) first = primes[n] * primes[n];
            for (long m = first; m < high; m += primes[n]) segment[m - low] = 0;
        }
        for (long n = low; n < high; n++) found += segment[n - low];
    }
    printf("%ld\n", found);
    free(segment);
    free(primes);
    return 0;
}
