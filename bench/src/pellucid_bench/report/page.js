// Draws the figures, and keeps what the reader has chosen in the page's address.
//
// Whatever a dataset says is text here: it is put into the page as text nodes, and into plots as values of
// data. No expression, markup or address is ever made of it.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  // Curves differ in colour, dash and mark. Two of them have the same three after 35 curves, since the counts of
  // colours and marks have no common factor.
  const LINES = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5"];
  const DASHES = [[], [7, 3], [2, 2.5], [8, 3, 2, 3]];
  const MARKS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-left"];
  // The marks of the key, in a square from -4 to 4.
  const MARK_PATHS = {
    "circle": "M-3,0a3,3,0,1,1,6,0a3,3,0,1,1,-6,0Z", "square": "M-3,-3h6v6h-6Z", "triangle-up": "M0,-4L4,3H-4Z",
    "diamond": "M0,-4L4,0L0,4L-4,0Z", "triangle-down": "M0,4L-4,-3H4Z", "triangle-left": "M-4,0L3,-4V4Z",
    "cross": "M-4,-1.5h2.5v-2.5h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5Z",
  };
  const CURVE_SIZES_MIN = 3;
  // Above this ratio, the shortest bars of a linear scale would be too short to be seen.
  const LINEAR_RATIO_MAX = 40;
  const AXIS = {
    "seconds": "datum.value == 0 ? '0' : format(datum.value, '~s') + 's'",
    "bytes": "datum.value == 0 ? '0' : format(datum.value, '~s') + 'B'",
    "rows/s": "datum.value == 0 ? '0' : format(datum.value, '~s') + '/s'",
    "operations/s": "datum.value == 0 ? '0' : format(datum.value, '~s') + '/s'",
    "ratio": "format(datum.value, '~r') + 'x'",
    "share": "format(datum.value * 100, '~r') + ' %'",
  };

  // ---- State: what the reader chose, as name=value pairs after the # of the address.

  const state = {theme: "", at: "", of: data.experiments.map(() => fresh())};

  function fresh() {
    return {plot: "", scale: "", base: "", hide: new Set(), sizes: new Map()};
  }

  function load() {
    const given = new URLSearchParams(location.hash.slice(1));
    state.theme = ["light", "dark"].includes(given.get("theme")) ? given.get("theme") : "";
    state.at = given.get("at") || "";
    state.of = data.experiments.map((experiment) => {
      const choice = fresh();
      const get = (key) => given.get(`${experiment.name}.${key}`) || "";
      choice.plot = ["bars", "curves"].includes(get("plot")) ? get("plot") : "";
      choice.scale = ["linear", "log"].includes(get("scale")) ? get("scale") : "";
      choice.base = experiment.contenders.includes(get("base")) ? get("base") : "";
      given.getAll(`${experiment.name}.hide`)
        .filter((name) => experiment.contenders.includes(name)).forEach((name) => choice.hide.add(name));
      experiment.figures.forEach((figure, index) => {
        const size = figure.sizes.indexOf(Number(get(`size.${index}`) || NaN));
        if (size >= 0) choice.sizes.set(index, size);
      });
      return choice;
    });
  }

  function save() {
    const words = new URLSearchParams();
    if (state.theme) words.set("theme", state.theme);
    if (state.at) words.set("at", state.at);
    data.experiments.forEach((experiment, index) => {
      const choice = state.of[index];
      for (const key of ["plot", "scale", "base"]) {
        if (choice[key]) words.set(`${experiment.name}.${key}`, choice[key]);
      }
      for (const name of choice.hide) words.append(`${experiment.name}.hide`, name);
      for (const [figure, size] of choice.sizes) {
        words.set(`${experiment.name}.size.${figure}`, experiment.figures[figure].sizes[size]);
      }
    });
    history.replaceState(null, "", words.size ? `#${words}` : location.pathname + location.search);
  }

  // ---- Elements

  function element(name, attributes = {}, ...content) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value === true) made.setAttribute(key, "");
      else if (value !== false && value !== null) made.setAttribute(key, value);
    }
    made.append(...content);
    return made;
  }

  function choice(label, options, chosen, change) {
    const select = element("select", {onchange: () => change(select.value)});
    for (const [value, text] of options) {
      select.append(element("option", {value, selected: value === chosen}, text));
    }
    return element("label", {}, `${label} `, select);
  }

  // ---- Specifications of plots

  const visible = (shown, row) => !shown.choice.hide.has(shown.experiment.contenders[row.contender]);

  // The value that a plot shows: the median, or how many times the baseline's cost it is.
  function valued(shown, run, row) {
    const values = [row.median, row.low, row.high];
    if (shown.choice.base) {
      const base = shown.figure.rows.find((other) => other.run === run && other.size === row.size &&
        shown.experiment.contenders[other.contender] === shown.choice.base)?.median;
      if (!(base > 0) || row.median === null || row.median < 0) return null;
      const ratio = (value) => value === null ? null : shown.figure.better === "lower" ? value / base
        : value ? base / value : null;
      const [value, one, two] = values.map(ratio);
      if (value === null) return null;
      const ends = one === null || two === null ? [null, null] : [Math.min(one, two), Math.max(one, two)];
      return {value, low: ends[0], high: ends[1], text: times(value)};
    }
    return {value: values[0], low: values[1], high: values[2], text: row.text};
  }

  function times(ratio) {
    if (ratio < 0.01) return `${Number(ratio.toPrecision(1))}x`;
    const digits = ratio < 10 ? 2 : 0;
    return `${ratio.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits})}x`;
  }

  function points(shown, run, size) {
    const found = [];
    for (const row of shown.figure.rows) {
      if (row.run !== run || (size !== null && row.size !== size) || !visible(shown, row)) continue;
      const failed = row.median === null;
      const value = failed ? {value: null, low: null, high: null, text: row.text} : valued(shown, run, row);
      if (value === null) continue;
      const name = shown.experiment.contenders[row.contender];
      const tip = {contender: name};
      if (shown.figure.sizes.length > 1) tip.size = shown.figure.sizeTexts[row.size];
      tip[failed ? "no figure" : "median"] = row.text;
      if (shown.choice.base && !failed) tip.ratio = `${value.text} the ${shown.figure.cost} of ${shown.choice.base}`;
      if (row.interval) tip["95 % interval"] = row.interval;
      if (!failed) tip.samples = row.samples;
      if (row.remarks && !failed) tip.remarks = row.remarks;
      found.push({...value, name, tip, failed, rank: found.length, role: data.roles[row.role],
        at: shown.figure.sizes[row.size], unstable: row.unstable, label: (row.unstable ? "\u2248 " : "") + (failed ? "" : value.text)});
    }
    return found;
  }

  function range(all) {
    const values = all.flatMap((one) => [one.value, one.low, one.high]).filter((value) => value !== null);
    const positive = values.filter((value) => value > 0);
    return {low: Math.min(...positive), high: Math.max(...values, 0), least: Math.min(...values, 0)};
  }

  function scaleOf(shown, all, isCurve) {
    const {low, high, least} = range(all);
    const possible = Number.isFinite(low);
    let log = shown.choice.scale === "log";
    // What is below 0 has no place on a logarithmic scale, so it is chosen by the reader alone.
    if (!shown.choice.scale) log = possible && least >= 0 && (isCurve || high / low > LINEAR_RATIO_MAX);
    if (!log || !possible) {
      const room = (high - least) * 0.02 || 1;
      return {type: "linear", zero: false, domain: [least < 0 ? least - room : 0, high + room]};
    }
    const ends = shown.choice.base ? [Math.min(low, 1), Math.max(high, 1)] : [low, high];
    return {type: "log", domain: [ends[0] / 1.5, ends[1] * 1.5]};
  }

  // Ticks of a logarithmic scale at whole powers of ten, or at 1, 2 and 5 where these are too few.
  function logTicks([low, high], most) {
    const decades = Math.log10(high / low);
    const steps = decades < 1.5 ? [1, 2, 5] : [1];
    // One tick says nothing of the distances, so they get closer until there are two.
    for (let each = Math.max(1, Math.ceil(decades / most)); ; each--) {
      const ticks = ticksOf(low, high, steps, each);
      if (ticks.length > 1 || each === 1) return ticks;
    }
  }

  function ticksOf(low, high, steps, each) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      if (steps.length === 1 && power % each) continue;
      for (const step of steps) {
        const tick = Number(`${step}e${power}`);
        if (tick >= low && tick <= high) ticks.push(tick);
      }
    }
    return ticks;
  }

  function axisOf(shown, scale, room, direction) {
    const count = Math.max(2, Math.floor(room / (direction === "x" ? 75 : 45)));
    const base = shown.choice.base;
    return {
      title: base ? `${shown.figure.cost}, as a multiple of the baseline` : shown.figure.axis,
      labelExpr: base ? AXIS.ratio : AXIS[shown.figure.unit],
      ...(scale.type === "log" ? {values: logTicks(scale.domain, count)} : {tickCount: count}),
      grid: true, labelOverlap: true,
    };
  }

  const pen = document.createElement("canvas").getContext("2d");

  function widest(texts) {
    pen.font = `${CONFIG.axis.labelFontSize}px ${CONFIG.font}`;
    return Math.ceil(Math.max(0, ...texts.map((text) => pen.measureText(text).width)));
  }

  const ROLE_COLORS = {
    domain: ["ours", "slower", "faster", "other", "reference"],
    range: ["var(--ours)", "var(--slower)", "var(--faster)", "var(--slower)", "var(--reference)"],
  };

  const ROLE_NAMES = {
    "ours": "pellucid", "slower": "another library", "faster": "another library, better than pellucid",
    "reference": "for orientation",
  };

  function bars(shown, all, rows, room) {
    const scale = scaleOf(shown, all, false);
    const widestName = widest(rows.map((row) => row.name)) + 4;
    // Where a name would take too much of the width, it stands above its bar.
    const above = room < 480 && widestName > room * 0.42;
    const label = above ? 0 : Math.min(widestName, Math.round(room * 0.48));
    const low = above ? 8 : 0;
    const floor = scale.type === "log" ? (shown.choice.base ? 1 : scale.domain[0]) : 0;
    const values = rows.map((row) => ({...row, floor,
      value: scale.type === "log" && row.value !== null && row.value <= 0 ? null : row.value}));
    const x = {field: "value", type: "quantitative", scale: {...scale, nice: false},
      axis: axisOf(shown, scale, room - label - 80, "x")};
    const color = {field: "role", type: "nominal", scale: ROLE_COLORS, legend: null};
    // A bar on a logarithmic scale has no meaningful length, except from 1 on for ratios. So it is a dot. Grey
    // points lead the eye from the name to it: a line would look like a bar, or like an interval. The stroke of
    // a bar can be seen where the bar itself is too short.
    const isBar = scale.type === "linear" || shown.choice.base;
    const marks = isBar
      ? [{mark: {type: "bar", height: above ? 14 : {band: 0.68}, yOffset: low, strokeWidth: 1},
        encoding: {x, x2: {field: "floor"}, color, stroke: color}}]
      : [{mark: {type: "rule", strokeWidth: 1, strokeDash: [1, 4], color: "var(--muted)", opacity: 0.7, yOffset: low,
        y2Offset: low}, encoding: {x, x2: {field: "floor"}}},
      {mark: {type: "circle", size: 75, opacity: 1, yOffset: low}, encoding: {x, color}}];
    const text = (more) => ({type: "text", align: "left", dy: low, ...more});
    return {
      height: {step: above ? 40 : 22},
      encoding: {y: {field: "name", type: "nominal", sort: null, axis: above ? null : {title: null, domain: false,
        ticks: false, labelLimit: label, labelPadding: 6}}},
      layer: [
        ...marks.map((layer) => ({transform: [{filter: "!datum.failed && isValid(datum.value)"}], ...layer})),
        {transform: [{filter: `!datum.failed && isValid(datum.low) && ${scale.type === "log" ? "datum.low > 0" : "true"}`}],
          mark: {type: "rule", strokeWidth: 1.5, color: "var(--ink)", yOffset: low, y2Offset: low},
          encoding: {x: {field: "low", type: "quantitative"}, x2: {field: "high"}}},
        {transform: [{filter: "!datum.failed"}], mark: text({dx: 8}),
          encoding: {x: {value: "width"}, text: {field: "label"}}},
        {transform: [{filter: "datum.failed"}],
          mark: text({dx: 4, color: "var(--failed)", fontStyle: "italic", limit: Math.max(60, room - label - 20)}),
          encoding: {x: {value: 0}, text: {field: "text"}}},
        ...(above ? [{mark: text({dy: -9, limit: room - 20}), encoding: {x: {value: 0}, text: {field: "name"}}}] : []),
        {mark: {type: "bar", opacity: 0, tooltip: {expr: "datum.tip"}},
          encoding: {x: {value: 0}, x2: {value: "width"}}},
      ],
      values,
    };
  }

  // How each curve is drawn. Ours are blue. All others have a colour if they are few; if they are many, the best
  // way to use each library has one, and the rest is thin and grey: 25 colours could not be told apart.
  function lines(experiment, rows) {
    const last = new Map();
    for (const row of rows) {
      if (row.failed) continue;
      const known = last.get(row.name);
      if (!known || row.at > known.at) last.set(row.name, row);
    }
    const ranked = [...last.values()].sort((one, two) => two.at - one.at || one.rank - two.rank);
    const styles = new Map();
    const library = (name) => experiment.libraries[experiment.contenders.indexOf(name)];
    const inOrder = (names) => experiment.contenders.filter((name) => names.includes(name));
    const ours = ranked.filter((row) => row.role === "ours").map((row) => row.name);
    const others = ranked.filter((row) => row.role !== "ours").map((row) => row.name);
    const isFew = ranked.length <= experiment.curvesMax;
    const best = others.filter((name, place) => isFew || others.findIndex((one) => library(one) === library(name)) === place);
    inOrder(ours).forEach((name, place) => {
      styles.set(name, {color: "var(--ours)", width: place ? 1.8 : 3, dash: DASHES[place % DASHES.length],
        mark: MARKS[place % MARKS.length]});
    });
    inOrder(best).forEach((name, place) => {
      styles.set(name, {color: `var(${LINES[place % LINES.length]})`, width: 1.8, mark: MARKS[place % MARKS.length],
        dash: DASHES[Math.floor(place / LINES.length) % DASHES.length]});
    });
    others.filter((name) => !best.includes(name)).forEach((name) => {
      styles.set(name, {color: "var(--faint)", width: 1, dash: [], mark: "circle", faint: true});
    });
    // The key has the best first.
    return new Map(ranked.map(({name}) => [name, styles.get(name)]));
  }

  // Of a point itself, or of the cell around it that Vega-Lite makes to find the nearest point.
  const TIP_NEARBY = "datum.tip ? datum.tip : datum.datum ? datum.datum.tip : null";

  function curves(shown, all, rows, room) {
    const scale = scaleOf(shown, all, true);
    const looks = lines(shown.experiment, all);
    const names = [...looks.keys()];
    const styles = [...looks.values()];
    const values = rows.filter((row) => !row.failed && (scale.type === "linear" || row.value > 0))
      .map((row) => ({...row, width: looks.get(row.name).width, faint: Boolean(looks.get(row.name).faint)}))
      // What is drawn later lies above: grey, then colours, then ours.
      .sort((one, two) => two.faint - one.faint || (one.role === "ours") - (two.role === "ours"));
    const sizes = shown.figure.sizes;
    const x = {field: "at", type: "quantitative", scale: {type: "log", nice: false, domain: [sizes[0], sizes.at(-1)]},
      axis: {title: shown.figure.sizeAxis, values: sizes, labelExpr: "format(datum.value, '~s')", grid: false,
        labelOverlap: true}};
    const y = {field: "value", type: "quantitative", scale: {...scale, nice: false},
      axis: axisOf(shown, scale, 280, "y")};
    const faded = {condition: {param: "near", value: 1, empty: true}, value: 0.15};
    return {
      height: room < 500 ? 260 : 320,
      encoding: {x, y, color: {field: "name", type: "nominal", legend: null, sort: null,
        scale: {domain: names, range: styles.map((style) => style.color)}}},
      layer: [
        {mark: {type: "line", interpolate: "linear"}, encoding: {opacity: faded,
          strokeDash: {field: "name", type: "nominal", legend: null, scale: {domain: names,
            range: styles.map((style) => style.dash.length ? style.dash : [1, 0])}},
          strokeWidth: {field: "width", type: "quantitative", scale: null}}},
        {mark: {type: "rule", opacity: 0.5},
          transform: [{filter: `isValid(datum.low) && ${scale.type === "log" ? "datum.low > 0" : "true"}`}],
          encoding: {y: {field: "low", type: "quantitative"}, y2: {field: "high"}, opacity: faded}},
        {params: [{name: "near", select: {type: "point", on: "pointerover", nearest: true, fields: ["name"],
          clear: "pointerout"}}],
          mark: {type: "point", filled: true, tooltip: {expr: TIP_NEARBY}}, encoding: {opacity: faded,
            shape: {field: "name", type: "nominal", legend: null, scale: {domain: names,
              range: styles.map((style) => style.mark)}},
            size: {condition: {test: "datum.faint", value: 12}, value: 50}}},
      ],
      values,
      looks,
    };
  }

  // Vega reads fonts and colours from here, and the page's style has them: a theme needs no new plot.
  const CONFIG = {
    background: null,
    font: "system-ui, sans-serif",
    view: {stroke: null},
    axis: {gridColor: "var(--grid)", domainColor: "var(--grid)", tickColor: "var(--grid)",
      labelColor: "var(--ink)", titleColor: "var(--muted)", titleFontWeight: "normal", labelFontSize: 12,
      titleFontSize: 12},
    text: {color: "var(--ink)", fontSize: 12},
  };

  // ---- Drawing: what is seen first, the rest when the browser is idle

  const figures = [];
  const waiting = new Set();
  let isDrawing = false;

  async function work() {
    if (isDrawing) return;
    isDrawing = true;
    while (waiting.size) {
      const next = [...waiting].find((figure) => figure.isSeen) || [...waiting][0];
      waiting.delete(next);
      await draw(next);
      await new Promise((resume) => setTimeout(resume));
    }
    isDrawing = false;
    document.documentElement.dataset.drawn = "true";
  }

  function redraw(some) {
    some.forEach((figure) => waiting.add(figure));
    delete document.documentElement.dataset.drawn;
    work();
  }

  function isCurve(shown) {
    const {plot} = shown.choice;
    if (shown.figure.sizes.length < 2 || plot === "bars" || shown.figure.sizes.some((size) => size <= 0)) return false;
    return plot === "curves" || shown.figure.sizes.length >= CURVE_SIZES_MIN;
  }

  async function draw(one) {
    const shown = {...one, choice: state.of[one.place]};
    const curve = isCurve(shown);
    const size = curve ? null : shown.choice.sizes.get(one.index) ?? shown.figure.sizes.length - 1;
    drawControls(shown, curve, size);
    const runs = one.plots.map((node) => Number(node.dataset.run));
    const rows = runs.map((run) => points(shown, run, size));
    let looks = null;
    for (const [index, node] of one.plots.entries()) {
      one.views[index]?.finalize();
      one.views[index] = null;
      const isEmpty = !rows[index].some((row) => !row.failed);
      if (isEmpty && (curve || shown.choice.base || !rows[index].length)) {
        node.replaceChildren(element("p", {class: "empty"}, emptiness(shown, runs[index], size)));
        continue;
      }
      const make = curve ? curves : bars;
      const {values, looks: found, ...spec} = make(shown, rows.flat(), rows[index], node.clientWidth);
      looks = found || looks;
      const holder = element("div");
      node.replaceChildren(...(runs.length > 1 ? [element("b", {}, `Run ${shown.experiment.runs[runs[index]]}`)] : []),
        holder);
      try {
        const made = await vegaEmbed(holder, {
          $schema: "https://vega.github.io/schema/vega-lite/v6.json", description: `${shown.figure.title}: the ` +
            "table below has every figure", width: node.clientWidth, autosize: {type: "fit-x", contains: "padding"},
          padding: 2, data: {values}, config: CONFIG, ...spec,
        }, {ast: true, renderer: "svg", actions: false, defaultStyle: false, logLevel: 1,
          tooltip: {theme: "custom"}});
        one.views[index] = made;
      } catch (error) {
        node.replaceChildren(element("p", {class: "empty"}, `This plot cannot be drawn: ${error.message}`));
      }
      node.style.minHeight = "";
    }
    drawLegend(shown, rows.flat(), looks);
  }

  function emptiness(shown, run, size) {
    const there = shown.figure.rows.filter((row) => row.run === run && (size === null || row.size === size));
    if (!there.some((row) => row.median !== null)) return "No contender has a figure here.";
    if (!there.some((row) => row.median !== null && visible(shown, row))) return "The filter hides every contender.";
    return `${shown.choice.base} has no figure here, so there are no ratios to it.`;
  }

  function drawControls(shown, curve, size) {
    const node = shown.node.querySelector(".figure-controls");
    if (shown.figure.sizes.length < 2 || curve) {
      node.replaceChildren();
    } else if (!node.firstChild) {
      const options = shown.figure.sizeTexts.map((text, index) => [String(index), text]);
      node.append(choice("Size", options, String(size), (value) => {
        state.of[shown.place].sizes.set(shown.index, Number(value));
        save();
        redraw([figures.find((figure) => figure.node === shown.node)]);
      }));
    }
  }

  // The key of a plot: of bars what their colours mean, of curves which one is whose.
  function drawLegend(shown, rows, looks) {
    const svg = (name, attributes) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      return made;
    };
    const curve = (style, text) => {
      const picture = svg("svg", {width: 34, height: 10, "aria-hidden": "true"});
      picture.append(svg("line", {x1: 0, x2: 34, y1: 5, y2: 5, stroke: style.color, "stroke-width": style.width,
        "stroke-dasharray": style.dash.join(" ")}));
      if (!style.faint) picture.append(svg("path", {d: MARK_PATHS[style.mark], fill: style.color, transform: "translate(17 5)"}));
      return element("span", {}, picture, ` ${text}`);
    };
    const swatch = (kind, text) => element("span", {}, element("span", {class: `swatch ${kind}`}), text);
    const figures = rows.filter((row) => !row.failed);
    const roles = new Set(figures.map((row) => row.role === "other" ? "slower" : row.role));
    const listed = looks ? [...looks].filter(([, style]) => !style.faint).map(([name, style]) => curve(style, name))
      : Object.entries(ROLE_NAMES).filter(([role]) => roles.has(role)).map(([role, text]) => swatch(role, text));
    const faint = looks ? [...looks.values()].filter((style) => style.faint) : [];
    const ways = faint.length === 1 ? "1 other way" : `${faint.length} other ways`;
    if (faint.length) listed.push(curve(faint[0], `${ways} to use these libraries`));
    if (figures.some((row) => row.low !== null)) {
      listed.push(swatch("interval", looks ? "upright: 95 % interval" : "95 % interval"));
    }
    if (!looks && figures.some((row) => row.unstable)) listed.push(swatch("unstable", "unstable"));
    shown.node.querySelector(".legend").replaceChildren(...listed);
  }

  // ---- Controls

  function controls(place, section) {
    const experiment = data.experiments[place];
    const node = section.querySelector(".controls");
    const set = (key) => (value) => { state.of[place][key] = value; changed(place); };
    const {plot, scale, base} = state.of[place];
    const wasOpen = node.querySelector("details")?.open;
    node.replaceChildren(
      ...(experiment.figures.some((figure) => figure.sizes.length > 1)
        ? [choice("Plot", [["", "automatic"], ["bars", "bars"], ["curves", "curves"]], plot, set("plot"))] : []),
      choice("Scale", [["", "automatic"], ["linear", "linear"], ["log", "logarithmic"]], scale, set("scale")),
      choice("Baseline", [["", "none: figures"], ...experiment.contenders.map((name) => [name, name])], base,
        set("base")),
      filter(place, wasOpen),
    );
  }

  function filter(place, isOpen) {
    const {contenders} = data.experiments[place];
    const {hide} = state.of[place];
    const summary = element("summary");
    const count = () => { summary.textContent = `Contenders: ${contenders.length - hide.size} of ${contenders.length}`; };
    const boxes = contenders.map((name) => {
      const box = element("input", {type: "checkbox", onchange: () => {
        if (box.checked) hide.delete(name); else hide.add(name);
        count();
        changed(place);
      }});
      box.checked = !hide.has(name);
      return {box, name};
    });
    const all = (chosen) => element("button", {type: "button", onclick: () => {
      for (const {box, name} of boxes) {
        box.checked = chosen;
        if (chosen) hide.delete(name); else hide.add(name);
      }
      count();
      changed(place);
    }}, chosen ? "All" : "None");
    count();
    return element("details", {class: "filter", open: Boolean(isOpen)}, summary, element("fieldset", {},
      element("legend", {}, "Show these contenders"), element("p", {}, all(true), " ", all(false)),
      ...boxes.map(({box, name}) => element("label", {}, box, ` ${name}`))));
  }

  function changed(place) {
    save();
    redraw(figures.filter((figure) => figure.place === place));
  }

  function pageControls() {
    const themes = [["", "as the system"], ["light", "light"], ["dark", "dark"]];
    document.getElementById("page-controls").replaceChildren(
      choice("Theme", themes, state.theme, (value) => { state.theme = value; save(); showTheme(); }),
      element("button", {type: "button", onclick: () => { location.hash = ""; restore(); }}, "Reset all choices"),
    );
  }

  function showTheme() {
    if (state.theme) document.documentElement.dataset.theme = state.theme;
    else delete document.documentElement.dataset.theme;
  }

  function restore() {
    load();
    showTheme();
    pageControls();
    sections.forEach((section, place) => controls(place, section));
    figures.forEach((figure) => figure.node.querySelector(".figure-controls").replaceChildren());
    redraw(figures);
  }

  const sections = [...document.querySelectorAll("section.experiment")];
  sections.forEach((section, place) => {
    section.querySelectorAll("figure").forEach((node) => {
      const index = Number(node.dataset.figure);
      const experiment = data.experiments[place];
      const figure = experiment.figures[index];
      const plots = [...node.querySelectorAll(".plot")];
      for (const plot of plots) {
        // The page keeps its length when plots come, so that nothing jumps while it is read.
        const rows = figure.rows.filter((row) => row.run === Number(plot.dataset.run));
        plot.style.minHeight = `${Math.min(360, 22 * rows.length + 40)}px`;
      }
      figures.push({node, place, index, experiment, figure, plots, views: [], isSeen: false});
    });
  });
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      figures.find((figure) => figure.node === entry.target).isSeen = entry.isIntersecting;
    }
  }, {rootMargin: "300px"});
  figures.forEach((figure) => seen.observe(figure.node));

  document.querySelectorAll("nav a, .summary a").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault();
    state.at = link.getAttribute("href").slice(1);
    save();
    document.getElementById(state.at).scrollIntoView();
  }));
  addEventListener("hashchange", restore);
  let width = innerWidth;
  let resized = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(resized);
    resized = setTimeout(() => redraw(figures), 150);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details.facts").forEach((one) => { one.open = true; }));

  restore();
  const start = location.hash.includes("=") ? state.at : location.hash.slice(1);
  if (start) document.getElementById(start)?.scrollIntoView();
})();
