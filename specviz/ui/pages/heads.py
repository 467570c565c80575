from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from specviz.analysis.head_report import HeadReport
from specviz.plots import heads as plots
from specviz.registry import discover, summary
from specviz.ui import head_words, notes
from specviz.ui.app import App
from specviz.ui.controls import QUIET
from specviz.ui.installed import Head, command, head_folders, read_heads, report_file, target_weights

ORDER = ("tree_size", "depth", "calibration", "learning", "loss")  # plots named here come first


def heads(app: App) -> HeadsPage:
    """Every installed head with its report: how good it is, at what, and how it was trained."""
    page = HeadsPage(app)
    page.place()
    page.wire()
    return page


def found_plots() -> dict[str, Any]:
    """Returns every discovered figure of a report, in the order of the page."""
    found = discover(plots)
    return {name: found[name] for name in sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))}


class HeadsPage:
    """The heads page: its components, and the handlers as methods. Files are read when it is opened, so that a new report is there at once."""

    def __init__(self, app: App) -> None:
        self.app = app

    def place(self) -> None:
        self.asked = gr.State(None)  # the head that another page asked for; shown when this page opens
        with gr.Row(elem_classes="app-bar"):
            self.pick = gr.Dropdown(
                list(head_folders(self.app.target_name)), value=None, label="Head", interactive=True, filterable=False, min_width=180,
                elem_id="heads-pick",
            )  # fmt: skip
            self.others = gr.Checkbox(True, label="Show the other heads too", interactive=True, min_width=180, elem_id="heads-others")
            self.draft = gr.Button("Draft with this head", size="sm", min_width=0, visible=False, elem_id="heads-draft", elem_classes="app-quiet")
            self.download = gr.HTML("", elem_id="heads-download")
        self.summary = gr.HTML("", elem_id="heads-summary")
        with gr.Column(visible=False, elem_classes="app-main", min_width=0) as self.measured:
            self.figures = self._place_figures()
            self.sections = gr.HTML("", elem_id="heads-sections")
            with gr.Accordion("All measured trees", open=False, elem_classes="app-fold"):
                self.trees = gr.HTML("", elem_id="heads-trees")
        with gr.Accordion("Training settings", open=False, elem_classes="app-fold"):
            self.settings = gr.HTML("", elem_id="heads-settings")
        self.overview = gr.HTML("", elem_id="heads-overview")

    def _place_figures(self) -> dict[str, gr.Plot]:
        placed = {}
        with gr.Row(elem_classes="app-charts app-figures"):
            for name, plot in found_plots().items():
                with gr.Column(elem_classes="app-card app-figure", min_width=0):
                    placed[name] = gr.Plot(show_label=False, container=False, elem_id=f"heads-plot-{name}", elem_classes="app-chart")
                    gr.HTML(f'<p class="app-caption">{escape(summary(plot))}</p>')
        return placed

    def wire(self) -> None:
        gr.on([self.pick.select, self.others.input], self.show, self.inputs, self.outputs, **QUIET)

    @property
    def inputs(self) -> list[Any]:
        return [self.pick, self.others, self.asked]

    @property
    def outputs(self) -> list[Any]:
        told = [self.asked, self.pick, self.draft, self.download, self.summary, self.measured, self.sections, self.trees, self.settings, self.overview]
        return [*told, *self.figures.values()]

    def show(self, name: str | None, others: bool = True, asked: str | None = None) -> dict[Any, Any]:
        """Returns the report of a head for every part of the page: the one asked for, else the one named, else the best one measured."""
        found, name = read_heads(self.app), asked or name
        if not found:
            hidden = {part: gr.update(visible=False) for part in (self.draft, self.measured)}
            return {**hidden, self.asked: None, self.pick: gr.update(choices=[], value=None), self.summary: self._missing(name or "eagle"), self.overview: ""}
        lost = self._missing(name) if name and name not in found else ""
        head = found[name] if name in found else max(found.values(), key=_tau)
        return {
            self.asked: None,
            self.pick: gr.update(choices=list(found), value=head.name),
            self.draft: gr.update(visible=head.can_draft),
            self.download: self._download(head),
            self.summary: lost + head_words.headline(head, target_weights(self.app), self.app.settings.target),
            self.measured: gr.update(visible=head.report is not None),
            self.settings: head_words.settings(head),
            self.overview: head_words.overview(found, head.name),
            **self._report(head.report, [one.report for one in found.values() if others and one.report and one is not head]),
        }

    def _report(self, report: HeadReport | None, others: list[HeadReport]) -> dict[Any, Any]:
        if report is None:
            return {}
        figures = {place: found_plots()[name](report, others) for name, place in self.figures.items()}
        return {self.sections: head_words.sections(report), self.trees: head_words.trees(report), **figures}

    def _missing(self, method: str) -> str:
        train = command("train", method, self.app.settings.target)
        return notes.message(f"No {method} head is installed for {self.app.target_name}. Train one with: {train}", "error")

    def _download(self, head: Head) -> str:
        file = report_file(self.app.target_name, head.name) if head.report else None
        return head_words.download(head.name, file.read_bytes()) if file else ""


def _tau(head: Head) -> float:
    return head.report.main.tau if head.report and head.report.main else 0.0
