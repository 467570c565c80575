from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specviz.analysis.head_report import HeadReport
from specviz.plots.base import empty
from specviz.plots.calibration import reliability
from specviz.plots.heads.base import NOT_MEASURED, roomy


def calibration(report: HeadReport, others: Sequence[HeadReport] = ()) -> go.Figure:
    """Candidates whose parent was accepted, in bins of the draft's confidence q: mean q against the share accepted, with their number. On the diagonal the draft knows itself."""
    return roomy(reliability(report.calibration)) if report.calibration else empty("Does the confidence hold?", NOT_MEASURED)
