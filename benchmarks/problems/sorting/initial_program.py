# EVOLVE-BLOCK-START
def comparators():
    return [
        (0, 1),
        (2, 3),
        (4, 5),
        (0, 1),
        (2, 3),
        (4, 5),
        (0, 1),
        (2, 3),
        (4, 5),
        (0, 1),
        (2, 3),
        (4, 5),
    ]


# EVOLVE-BLOCK-END
