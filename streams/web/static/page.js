/* Requests the present page periodically, and sends what an operator confirmed. The server decides what is shown. */
"use strict";

(() => {
  const JSON_TYPE = { "Content-Type": "application/json" };
  const GREY = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' r='7' fill='%23888'/%3E%3C/svg%3E";
  const link = document.getElementById("link");
  const everyMs = Number(document.body.dataset.refreshMs);
  const fresh = link.textContent;
  let answered = Date.now();
  let charts = [];

  // What the operator is doing stays: open details, typed text, the chart.
  const callbacks = {
    beforeAttributeUpdated: (name, element) => name !== "open" && name !== "value" && !element.closest?.("[data-keep]"),
    beforeNodeMorphed: (old) => !old.dataset || !("keep" in old.dataset),
  };

  function replace(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    for (const id of ["main", "pages"]) {
      const [old, now] = [document.getElementById(id), page.getElementById(id)];
      if (old && now) Idiomorph.morph(old, now.innerHTML, { morphStyle: "innerHTML", callbacks, ignoreActiveValue: true });
    }
    document.title = page.title;
    const icon = page.getElementById("icon").href;
    if (document.getElementById("icon").href !== icon) document.getElementById("icon").href = icon;
  }

  async function refresh() {
    if (document.hidden) return;
    try {
      const response = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (response.redirected && new URL(response.url).pathname === "/login") return location.replace(response.url);
      const text = await response.text();
      if (!text.includes('<main id="main"')) throw new Error("HTTP " + response.status);
      replace(text);
      answered = Date.now();
      document.body.classList.remove("old");
      link.textContent = fresh;
      await draw();
    } catch (error) {
      document.body.classList.add("old");
      document.getElementById("icon").href = GREY;
      document.title = "? " + document.title.replace(/^\? /, "");
      const seconds = Math.round((Date.now() - answered) / 1000);
      link.textContent = "No response from Trueup for " + seconds + " s; the page is outdated (" + error.message + ")";
    }
  }

  const ask = document.getElementById("ask");
  const [says, problem, yes] = ["ask-says", "ask-problem", "ask-yes"].map((id) => document.getElementById(id));
  let wanted = null;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-path]");
    if (!button) return;
    wanted = { ...button.dataset, label: button.textContent };
    document.getElementById("ask-title").textContent = wanted.label + "?";
    says.textContent = wanted.says;
    problem.textContent = "";
    yes.disabled = false;
    ask.showModal();
    document.getElementById("ask-no").focus();
  });

  yes.addEventListener("click", async () => {
    yes.disabled = true;
    try {
      const headers = { ...JSON_TYPE, "Trueup-Check": document.body.dataset.check };
      const response = await fetch(wanted.path, { method: wanted.method, headers, body: wanted.body });
      if (!response.ok) {
        const found = await response.json();
        problem.textContent = "Refused: expected " + found.expected + "; found " + found.found + ". " + found.todo;
        return;
      }
      ask.close();
      await refresh();
      link.textContent = "Done: " + wanted.label;
    } catch (error) {
      problem.textContent = "No response (" + error.message + "). Whether the request was executed is not known: see the timeline.";
    }
  });

  document.getElementById("logout")?.addEventListener("click", async () => {
    await fetch("/logout", { method: "POST", headers: JSON_TYPE, body: "{}" });
    location.replace("/login");
  });

  async function draw() {
    const place = document.getElementById("chart");
    if (!place || !window.uPlot) return;
    const response = await fetch("/api/trends/" + encodeURIComponent(place.dataset.stream));
    if (!response.ok) return;
    const found = await response.json();
    const units = new Map();
    for (const name of Object.keys(found.series)) {
      const unit = found.units[name];
      units.set(unit, [...(units.get(unit) || []), name]);
    }
    const at = found.at_ms.map((time) => time / 1000);
    const wanted = [...units].map(([unit, names]) => ({ unit, names, data: [at, ...names.map((name) => found.series[name])] }));
    const size = { width: place.clientWidth, height: 210 };
    const keys = JSON.stringify(wanted.map((each) => each.names));
    if (place.dataset.series === keys) {
      charts.forEach((chart, index) => {
        chart.setData(wanted[index].data);
        if (chart.width !== size.width) chart.setSize(size);
      });
      return;
    }
    place.dataset.series = keys;
    place.replaceChildren();
    const style = getComputedStyle(document.documentElement);
    const [text, line] = ["--quiet", "--line"].map((name) => style.getPropertyValue(name));
    const colours = ["--drifted", "--blocked", "--unknown", "--link", "--true"].map((name) => style.getPropertyValue(name));
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
    const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);
    const times = { ...axis, values: (_, splits) => splits.map(clock), label: "UTC", labelSize: 18 };
    charts = wanted.map(({ unit, names, data }) => {
      const series = names.map((label, index) => ({ label, stroke: colours[index % colours.length], width: 1.5 }));
      const time = { value: (_, seconds) => (seconds === null ? "--" : clock(seconds)) };
      return new uPlot({ ...size, series: [time, ...series], axes: [times, { ...axis, size: 64, label: unit, labelSize: 18 }] }, data, place);
    });
  }

  window.addEventListener("resize", () => draw().catch(() => {}));

  (async function loop() {
    await draw().catch(() => {});
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, everyMs));
      await refresh();
    }
  })();
})();
