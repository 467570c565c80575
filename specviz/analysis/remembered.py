"""What `auto` chose here before, from files alone: the head's report and the profiles of this machine."""

from __future__ import annotations

from pathlib import Path

from specviz import __version__
from specviz.analysis.budget import Budget, choose, taus_of
from specviz.analysis.head_report import load_report
from specviz.analysis.profile_file import remembered_profiles
from specviz.errors import BadFile, Missing
from specviz.processor import processor_name


def remembered_budget(folder: Path, name: str) -> Budget | None:
    """Returns what `auto` chose at temperature 0 according to the newest profile of this machine; None where nothing is remembered.

    Loads no model: the head's report names its target's weights and its own.
    """
    try:
        report = load_report(folder)
    except (Missing, BadFile):
        return None
    for profile in remembered_profiles():
        device, versions, target = (profile.setting[key] for key in ("device", "versions", "target"))
        same = device.get("processor") == processor_name() and versions.get("specviz") == __version__
        costs = profile.costs_of(name, report.checkpoint, sampled=False)
        if same and costs is not None and (target.get("fingerprint") or {}).get("weights") == report.target.weights:
            return choose(taus_of(report, 0.0), profile, costs)
    return None
