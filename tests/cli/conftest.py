"""Running the command line in tests."""

import pytest

from maxmargin.cli import main


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command line in an empty directory; answers with its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def words(*line):
        code = main([str(word) for word in line])
        said = capsys.readouterr()
        return code, said.out, said.err

    return words
