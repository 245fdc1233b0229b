"""Does a database keep what it promises when processes are killed, power fails, and many write at once?

`kills` is the campaign of SIGKILL, `histories` checks what concurrent clients have seen; the rehearsal of
power cuts is `crates/store/tests/power_loss.rs`. `python -m crash`, or `./dev crash`, runs all of them.
"""
