# EVOLVE-BLOCK-START
def constants():
    return [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]


# EVOLVE-BLOCK-END
