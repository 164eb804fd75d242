"""Whether a version has golden photographs: what ``[golden]`` of shoal.toml says, or golden.json if it is there."""

from pathlib import Path

from models.side_file import GoldenTable, SideFile
from models.spec import GoldenSpec
from models.text_files import file_inside


def golden_spec(side: SideFile, directory: Path) -> GoldenSpec | None:
    """What to compare at each load; the file itself is read then.

    Args:
        side: The parsed shoal.toml.
        directory: The model's.

    Raises:
        ConfigError: The table is there, and nothing says how photographs become rows.
    """
    table = side.tables.golden
    if side.tables.preprocessing is None:
        if table is not None:
            raise side.lines.error("golden", found="a table", expected="[preprocessing] beside it, which it checks")
        return None
    if table is None:
        table = GoldenTable()
        if file_inside(directory, table.file) is None:
            return None
    return GoldenSpec(
        directory=directory,
        name=table.file,
        tolerance_levels=table.tolerance_levels,
        tolerance_probability=table.tolerance_probability,
    )


def golden_table(spec: GoldenSpec) -> dict[str, object]:
    """The table that leads to it."""
    return GoldenTable(
        file=spec.name,
        tolerance_levels=spec.tolerance_levels,
        tolerance_probability=spec.tolerance_probability,
    ).model_dump()
