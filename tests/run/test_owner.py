"""Files that another user could have written are not believed, and their code is not run, unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from volary.errors import RunError
from volary.run.owner import refuse_foreign, require_private

SOMEBODY = 54321
root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "session.yaml"
    path.touch(mode=0o600)
    return path


def test_what_is_ours_is_taken(file: Path) -> None:
    refuse_foreign(file, file.parent / "not there")
    require_private(file)


def test_what_is_the_systems_is_taken() -> None:
    refuse_foreign(Path("/etc/passwd"))


@root
def test_what_belongs_to_another_user_is_refused_in_a_sentence_that_names_the_option(file: Path) -> None:
    os.chown(file, SOMEBODY, -1)
    with pytest.raises(RunError, match=rf"{file} belongs to user {SOMEBODY}, and you are root .*--trust"):
        refuse_foreign(file.parent, file)
    refuse_foreign(file, trust=True)
    with pytest.raises(RunError, match=f"{file} belongs to user {SOMEBODY}, and not to root"):
        require_private(file)


@root
def test_a_link_of_ours_to_what_belongs_to_another_user_is_refused(file: Path) -> None:
    os.chown(file, SOMEBODY, -1)
    link = file.with_name("link")
    link.symlink_to(file)
    with pytest.raises(RunError, match="belongs to"):
        refuse_foreign(link)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_may_write_to_is_not_private(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(RunError, match=r"can be written to by other users: chmod go-w"):
        require_private(file)


def test_what_others_may_read_is_no_secret(file: Path) -> None:
    require_private(file, secret=True)
    file.chmod(0o640)
    require_private(file)
    with pytest.raises(RunError, match=r"can be read by other users: chmod go= "):
        require_private(file, secret=True)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs files without a name")
def test_a_file_without_a_name_is_private_to_those_who_inherit_it() -> None:
    descriptor = os.memfd_create("nameless")
    try:
        require_private(Path(f"/proc/self/fd/{descriptor}"))
    finally:
        os.close(descriptor)
