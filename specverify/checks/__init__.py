"""One property of a sampler each: what is tallied, the law it must follow, and the verdict."""
