# The types of what is an error, for the stub of the compiled module. There is no module of this name.
from typing import type_check_only

# What a truth value or an iteration would be, of what has none. Each is an error for a type checker, which
# goes on with what follows: after a `NoReturn`, mypy takes all for unreachable. No argument is a `Never`.
@type_check_only
class AskExists: ...

@type_check_only
class UseSigns: ...

@type_check_only
class UseEach: ...
