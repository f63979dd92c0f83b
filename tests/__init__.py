"""All tests of the project."""

import os

# Settings that the user of this machine gives by the environment are not those of the tests.
for _name in [name for name in os.environ if name == "JOBDIR" or name.startswith("KROWL_")]:
    del os.environ[_name]
