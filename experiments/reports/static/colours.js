// Plots have the colours of the page, light or dark: Bokeh draws on a canvas, which no style sheet reaches.
"use strict";
function paint(part, colours) {
  const has = Object.entries(colours).filter(([name]) => name in part.properties);
  part.setv(Object.fromEntries(has));
}
function colour() {
  const style = getComputedStyle(document.documentElement);
  const [ink, line, card] = ["--ink", "--line", "--card"].map(name => style.getPropertyValue(name).trim());
  const colours = {
    axis_label_text_color: ink, major_label_text_color: ink, group_text_color: ink, label_text_color: ink, axis_line_color: ink,
    major_tick_line_color: ink, minor_tick_line_color: null, separator_line_color: line, grid_line_color: line,
    background_fill_color: card, border_line_color: null };
  for (const found of Bokeh.documents) for (const figure of found.roots())
    for (const place of [figure.below, figure.left, figure.right, figure.above, figure.center])
      for (const part of place) paint(part, colours);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", colour);
const plots = document.querySelectorAll(".plot").length;
const waiting = setInterval(() => { if (Bokeh.documents.length === plots) { clearInterval(waiting); colour(); } }, 20);
