"""Permission rules (T7): whether a call may run, must be asked for, or is refused. Pure.

A rule looks at text that a model made up, and text can often be read in more than one way: a command that
runs others, a path that climbs, an address with a name in front of an @. So a matcher has three answers
(`matching.Match`): no, yes, and *maybe*. An allow takes only a yes. An ask and a deny take a maybe as well; the
rules that may match stand beside the first that surely does, and the strictest of them decides. Where nothing is
doubtful this is what the config says: the first rule that matches decides, then the default of the tool's class.
"""

from tools_app.permissions.defaults import default_for
from tools_app.permissions.digests import digest
from tools_app.permissions.rules import Verdict, decide

__all__ = ["Verdict", "decide", "default_for", "digest"]
