"""Every error that Volary raises on purpose. One sentence each: what, where, what is accepted.

Beside it, `raised.py` reads the errors of others: whose code raised, and where.

VolaryError               exit code 1
├── BadInput              2   the user can mend it before anything starts
│   ├── SettingError      a setting's value; the session adds file, line and path
│   ├── DataError         a data file that is missing, truncated, empty or not what it claims
│   │   └── CorruptSample one sample that cannot be read; it is skipped, up to a share of an epoch
│   │   └── TargetError   a target that the loss cannot be computed with
│   └── RunError          a run that exists already, is missing, or is being written by someone else
├── WorkerFailed          3   a worker's own code raised
│   └── ProgramEnded      a program ended by sys.exit; the command ends with its status
├── WorkerLost            4   a worker died, was stopped or hung
├── ServerLost            4   a parameter server died or was stopped, and nobody else keeps what it kept
├── RanksDiffer           5   ranks (or replicas) that must be equal are not
├── NotFinite             6   the loss is NaN or infinite
├── NotSaved              1   what a run ends with could not be written
├── PeerLost              4   seen inside a worker: the exchange broke because somebody else went
└── Stopped               130 ended by the user
"""


class VolaryError(Exception):
    """Something went wrong in a way that a sentence can explain; `exit_code` is the command's status.

    Its text says what happened; what it says of files and commands as seen from the current folder is in its notes.
    """

    exit_code = 1

    @property
    def report(self) -> str:
        """The text, and the notes below it: what a command prints."""
        return "\n".join([str(self), *getattr(self, "__notes__", ())])


class BadInput(VolaryError):
    """The user's input cannot be used; nothing has started and nothing was changed."""

    exit_code = 2


class SettingError(BadInput):
    """A setting has a value that is not accepted."""


class DataError(BadInput):
    """Data that is missing, truncated, empty, or not of the format it should have."""


class TargetError(DataError):
    """A target that the loss cannot be computed with. place: of its sample among those given; `of` says which it is."""

    def __init__(self, target: int, accepted: str, place: int) -> None:
        super().__init__(f"a target is {target}; accepted: {accepted}")
        self.target, self.accepted, self.place = target, accepted, place

    def of(self, sample: int) -> DataError:
        """The same, with the sample's number in the data."""
        return DataError(f"the target of sample {sample} is {self.target}; accepted: {self.accepted}")


class CorruptSample(DataError):
    """A sample that cannot be read; skipped, up to `data.skip_corrupt`. A data set of your own may raise it, too.

    index: which one, once that is known.
    """

    index: int | None = None


class RunError(BadInput):
    """A run directory that exists already, is missing or damaged, or is in use."""


class WorkerFailed(VolaryError):
    """A worker's own code raised; the message names the rank and carries the end of its traceback."""

    exit_code = 3


class ProgramEnded(WorkerFailed):
    """A program of the user's own has ended by `sys.exit`. begun: after `volary.init()`, so that there is a run."""

    def __init__(self, text: str, status: int, *, begun: bool) -> None:
        super().__init__(text)
        self.exit_code = self.status = status
        self.begun = begun


class WorkerLost(VolaryError):
    """A worker died, was stopped or hung; the message names the rank, the host and its last step."""

    exit_code = 4


class ServerLost(VolaryError):
    """A parameter server died or was stopped, and nobody else keeps what it kept; the message names it."""

    exit_code = 4


class PeerLost(VolaryError):
    """Raised in a worker whose exchange broke because another one went away: a consequence, not a cause."""

    exit_code = 4


class RanksDiffer(VolaryError):
    """Ranks disagree about code, settings, versions, shapes, equal replicas' parameters, or how many steps to take."""

    exit_code = 5


class NotFinite(VolaryError):
    """The loss became NaN or infinite and the session says to stop then."""

    exit_code = 6


class NotSaved(VolaryError):
    """The end of a run (its last checkpoint, a function's result) could not be written, though it was tried again."""


class Stopped(VolaryError):
    """The user ended the run; it can be resumed."""

    exit_code = 130
