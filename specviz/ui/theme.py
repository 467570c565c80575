"""The app's look: Gradio's own theme with calm cards, plus style.css."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

STYLE = Path(__file__).with_name("style.css")
HEAD = "<style>body.dark { background: #121418; color-scheme: dark; }</style>"  # Gradio paints its own element only, not what lies behind it
SANS = ("Inter", "system-ui", "DejaVu Sans", "sans-serif")
MONO = ("JetBrains Mono", "DejaVu Sans Mono", "ui-monospace", "monospace")


def theme() -> gr.Theme:
    """Returns the theme; fonts are names of local fonts, so nothing is fetched."""
    base = gr.themes.Base(
        primary_hue=gr.themes.Color("#f2f8fc", "#e6f1f8", "#c5dff0", "#94c6e4", "#4ea3d3", "#0072b2", "#00639c", "#005180", "#004066", "#00304d", "#001f33"),
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
        text_size=gr.themes.sizes.text_md,
        font=list(SANS),
        font_mono=list(MONO),
    )
    return base.set(
        body_background_fill="#fbfbfc",
        body_background_fill_dark="#121418",
        body_text_color="#1b1f24",
        body_text_color_dark="#e6e8eb",
        body_text_color_subdued="#5b6472",
        body_text_color_subdued_dark="#a2abb9",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        block_border_width_dark="0px",
        block_shadow="none",
        block_shadow_dark="none",
        block_padding="0px",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_title_text_weight="500",
        block_title_text_size="12px",
        block_title_text_color="*body_text_color_subdued",
        block_title_text_color_dark="*body_text_color_subdued",
        block_info_text_size="12px",
        background_fill_primary="#ffffff",
        background_fill_primary_dark="#191c21",
        background_fill_secondary="#f5f6f8",
        background_fill_secondary_dark="#20242a",
        border_color_primary="#e3e6ea",
        border_color_primary_dark="#2b3038",
        input_background_fill="#ffffff",
        input_background_fill_dark="#15181d",
        input_border_color="#d5dae0",
        input_border_color_dark="#343a44",
        input_border_color_focus="#0072b2",
        input_border_color_focus_dark="#6bb8ea",
        input_border_width="1px",
        input_shadow="none",
        input_shadow_focus="0 0 0 3px rgba(0, 114, 178, .15)",
        input_padding="8px 10px",
        button_primary_background_fill="#1b1f24",
        button_primary_background_fill_hover="#343a44",
        button_primary_background_fill_dark="#e6e8eb",
        button_primary_background_fill_hover_dark="#ffffff",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#121418",
        button_secondary_background_fill="#ffffff",
        button_secondary_background_fill_hover="#f0f2f5",
        button_secondary_background_fill_dark="#20242a",
        button_secondary_background_fill_hover_dark="#2b3038",
        button_secondary_border_color="#d5dae0",
        button_secondary_border_color_dark="#343a44",
        button_transform_hover="none",
        button_transform_active="none",
        slider_color="#0072b2",
        slider_color_dark="#6bb8ea",
        layout_gap="12px",
        form_gap_width="0px",
    )
