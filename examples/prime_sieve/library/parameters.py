"""Numbers of the sieve, which the build writes as macros of C."""

# EVOLVE-BLOCK-START
SEGMENT_BYTES = 700
# EVOLVE-BLOCK-END

for name, value in list(globals().items()):
    if name.isupper():
        print(f"#define {name} {int(value)}")
