"""Every Python example in the pages runs, and prints what the page says that it prints."""

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_page(text: str, file: str) -> list[str]:
    """Run the Python blocks of a page, in order and with common names; return what went wrong."""
    names: dict[str, Any] = {"__name__": "__main__"}
    complaints: list[str] = []
    for block in BLOCK.finditer(text):
        code, line = block["code"], text.count("\n", 0, block.start("code"))
        if ">>>" not in code:
            exec(compile("\n" * line + code, file, "exec"), names)
            continue
        # A name for each block: by it the lines of others are told apart, which errors of recorded operators quote.
        test = doctest.DocTestParser().get_doctest(code, names, f"{Path(file).name}:{line + 1}", file, line)
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=complaints.append, clear_globs=False)
        names = test.globs
    return complaints


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    complaints = run_page(page.read_text(encoding="utf-8"), str(page))
    assert not complaints, "".join(complaints)


def structure(page: str) -> tuple[list[str], int, int]:
    """Return the blocks of a page without comments, and how many sections and rows of tables it has."""
    blocks = re.findall(r"^```\w+\n.*?^```", page, re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+#.*", "", b) for b in blocks], page.count("\n## "), page.count("\n|")


def test_the_translation_says_the_same() -> None:
    page, other = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))
    assert structure(page) == structure(other)


def test_a_wrong_example_would_be_found() -> None:
    page = "```python\nx = 2\n```\ntext\n```python\n>>> x + 1\n3\n>>> x + 2\n5\n\n```\n"
    complaints = "".join(run_page(page, "page.md"))
    assert 'File "page.md", line 8' in complaints
    assert "Expected:\n    5\nGot:\n    4" in complaints
    with pytest.raises(ZeroDivisionError):
        run_page("```python\n1 / 0\n```\n", "page.md")
