// Draws `<div data-plot='{"x": [seconds], "y": [numbers]}' data-label="…">` with uPlot, in the page's own colours.
"use strict";
{
  const drawn = new WeakMap(), clock = (at) => `${new Date(at * 1000).toISOString().slice(11, 16)} UTC`;
  const draw = (place) => {
    const said = place.dataset.plot, before = drawn.get(place);
    if (before?.said === said && before.width === place.clientWidth && place.firstElementChild) return;
    const { x, y } = JSON.parse(said);
    place.replaceChildren();
    drawn.set(place, { said, width: place.clientWidth });
    if (!x.length) return;
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    new uPlot({
      width: place.clientWidth, height: 170, cursor: { drag: { x: false, y: false } }, legend: { show: true },
      series: [{ value: (_plot, at) => (at ? clock(at) : "") }, { label: place.dataset.label, stroke: colour("--busy"), fill: colour("--busy-paper"), width: 2, points: { show: x.length < 3 } }],
      axes: [{ ...axis, space: 76, values: (_plot, at) => at.map(clock) }, { ...axis, size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] }],
      scales: { y: { range: (_plot, _low, high) => [0, Math.max(high, 1) * 1.1] } },
    }, [x, y], place);
  };
  const all = () => document.querySelectorAll("[data-plot]").forEach(draw);
  document.addEventListener("htmx:after:swap", all);
  addEventListener("resize", all);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { document.querySelectorAll("[data-plot]").forEach((each) => drawn.delete(each)); all(); });
  all();
}
