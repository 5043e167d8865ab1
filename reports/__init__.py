"""Results in; Markdown, terminal and HTML out. Reads result records, runs nothing."""
