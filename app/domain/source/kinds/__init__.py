"""Kinds of values in a Python program, as far as its text shows them, and its sizes and positions.

Nothing is run.  An assignment replaces the kind of a name; one inside a `try` is joined to it, and
so is an element that is added.  A value of which nothing is known has a symbol for where it
comes from, such as a parameter or an element of it, so that equal symbols mean values of one type.
Arrays that the program itself combines element by element are of one shape, and others are not.

`program` reads the text and answers questions; `values` says what is known of one value, `symbols`
what the program shows of those that are unknown, `calls` what calls result in; `scopes` has the
names of functions, and `sizes` follows sizes back to what they are made from.
"""
