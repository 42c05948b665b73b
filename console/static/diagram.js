// Draws `<div class="graph" data-graph='{nodes: [{id, label, kind, href, title, detail}], edges: [{from, to, label, kind}]}'>` as
// SVG, laid out by dagre. `data-current` is lit; `data-direction` is LR or TB. A range with `data-scrub="ID"` lights, on the
// graph of that id, the state after an event: a row with `data-seq`, `data-from` and `data-to`.
"use strict";
{
  const NS = "http://www.w3.org/2000/svg", LINE = 16, GLYPH = 7.4;
  const drawn = new WeakMap(), shown = new WeakMap();

  const make = (name, attributes, ...children) => {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const text = (said, x, y, name) => {
    const all = said.split("\n"), top = y - (all.length - 1) * LINE / 2;
    return make("text", { x, y: top, class: name }, ...all.map((line, number) => {
      const part = make("tspan", { x, dy: number ? LINE : 0 });
      part.textContent = line;
      return part;
    }));
  };
  const size = (said, glyph) => {
    const all = said.split("\n");
    return { width: Math.max(...all.map((each) => each.length)) * glyph + 4, height: all.length * LINE };
  };

  const layout = (graph, direction) => {
    const made = new dagre.graphlib.Graph({ multigraph: true });
    made.setGraph({ rankdir: direction, nodesep: 24, ranksep: 36, edgesep: 12, marginx: 12, marginy: 12 });
    made.setDefaultEdgeLabel(() => ({}));
    for (const each of graph.nodes) {
      const box = size(each.detail ? `${each.label}\n${each.detail}` : each.label, GLYPH);
      made.setNode(each.id, { ...each, width: box.width + 20, height: box.height + 12 });
    }
    graph.edges.forEach((each, number) => {
      const box = each.label ? size(each.label, 6.4) : { width: 0, height: 0 };
      if (made.hasNode(each.from) && made.hasNode(each.to)) {
        made.setEdge(each.from, each.to, { ...each, ...box, labelpos: "c" }, String(number));
      }
    });
    dagre.layout(made);
    return made;
  };

  const path = (points) => {  // smooth through the middles, as dagre's points are corners
    const [first, ...rest] = points, last = rest.at(-1);
    let d = `M${first.x},${first.y}`;
    rest.slice(0, -1).forEach((each, number) => {
      const next = rest[number + 1];
      d += ` Q${each.x},${each.y} ${(each.x + next.x) / 2},${(each.y + next.y) / 2}`;
    });
    return `${d} L${last.x},${last.y}`;
  };

  const draw = (place) => {
    const said = place.dataset.graph;
    if (drawn.get(place) === said && place.firstElementChild) { light(place, place.dataset.current); return; }
    const laid = layout(JSON.parse(said), place.dataset.direction ?? "LR");
    const { width, height } = laid.graph();
    const tip = make("marker", { id: `tip-${place.id}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" }, make("path", { d: "M0,0 L8,4 L0,8 z", class: "tip" }));
    const edges = laid.edges().map((each) => {
      const edge = laid.edge(each);
      return make("g", { class: "edge", "data-from": each.v, "data-to": each.w, "data-kind": edge.kind },
        make("path", { d: path(edge.points), "marker-end": `url(#tip-${place.id})` }),
        ...(edge.label ? [text(edge.label, edge.x, edge.y + 4, "label")] : []));
    });
    const nodes = laid.nodes().map((id) => {
      const node = laid.node(id), left = node.x - node.width / 2, top = node.y - node.height / 2;
      const title = make("title", {});
      title.textContent = node.title ?? node.label;
      const lines = node.detail ? `${node.label}\n${node.detail}` : node.label;
      const group = make("g", { class: "node", "data-node": id, "data-kind": node.kind }, title,
        make("rect", { x: left, y: top, width: node.width, height: node.height, rx: 7 }), text(lines, node.x, node.y + 4));
      return node.href ? make("a", { href: node.href + document.querySelector(".brand").search }, group) : group;
    });
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, make("defs", {}, tip), ...edges, ...nodes);
    place.replaceChildren(svg);
    drawn.set(place, said);
    light(place, place.dataset.current);
  };

  const light = (place, state, from) => {
    for (const each of place.querySelectorAll(".node")) each.classList.toggle("lit", each.dataset.node === state);
    for (const each of place.querySelectorAll(".edge")) {
      each.classList.toggle("lit", from !== undefined && each.dataset.from === from && each.dataset.to === state);
    }
    const lit = place.querySelector(".node.lit");
    if (!lit || shown.get(place) === state) return;  // nobody who has scrolled is drawn back
    shown.set(place, state);
    const box = lit.getBoundingClientRect(), frame = place.getBoundingClientRect();
    place.scrollLeft += box.left - frame.left - (frame.width - box.width) / 2;
  };

  const scrub = (range) => {
    const rows = [...document.querySelectorAll("tr[data-seq]")], at = Number(range.value);
    const row = rows.find((each) => Number(each.dataset.seq) === at), after = rows.find((each) => Number(each.dataset.seq) === at + 1);
    for (const each of rows) each.classList.toggle("at", each === row);
    const state = row?.dataset.to ?? after?.dataset.from;
    const place = document.getElementById(range.dataset.scrub);
    if (place && state !== undefined) light(place, state, row?.dataset.from);
    range.setAttribute("aria-valuetext", `after event ${at}: ${state}`);
    range.nextElementSibling.value = `after event ${at}: ${state}`;
  };

  const all = () => {
    document.querySelectorAll(".graph[data-graph]").forEach(draw);
    document.querySelectorAll("input[data-scrub]").forEach(scrub);
  };
  document.addEventListener("input", (event) => { if (event.target.matches("input[data-scrub]")) scrub(event.target); });
  document.addEventListener("htmx:after:swap", all);
  all();
}
