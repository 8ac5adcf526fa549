"""Studies that take minutes to hours: the paper's tables and figures, and our own.

A study is one file with a `STUDY`: its cases, how to measure one of them, and how to
draw what was measured. It may use all of `sdifp`, which must not import from here. Run
`python -m studies` for their names."""
