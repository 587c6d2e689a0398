"""Who is registered and whose lease runs: pure decisions, with `now` as an argument and the next wake-up
returned.
"""
