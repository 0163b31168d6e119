"""The one family of errors. Every error that a user can cause is raised through a named constructor, in one file per
kind: the wording of the whole system can be read here. Callers say `errors.name(...)`, whatever the file."""

from thalweg.errors.aggregate import *  # noqa: F403
from thalweg.errors.family import *  # noqa: F403
from thalweg.errors.join import *  # noqa: F403
from thalweg.errors.kind import *  # noqa: F403
from thalweg.errors.partitioning import *  # noqa: F403
from thalweg.errors.plan import *  # noqa: F403
from thalweg.errors.query import *  # noqa: F403
from thalweg.errors.select import *  # noqa: F403
from thalweg.errors.session import *  # noqa: F403
from thalweg.errors.sink import *  # noqa: F403
from thalweg.errors.source import *  # noqa: F403
from thalweg.errors.spark import *  # noqa: F403
from thalweg.errors.sql import *  # noqa: F403
from thalweg.errors.state import *  # noqa: F403
from thalweg.errors.testing import *  # noqa: F403
