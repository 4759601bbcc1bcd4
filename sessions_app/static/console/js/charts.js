/* The charts of the usage page. Each <canvas data-chart> names the element that holds its numbers as JSON:
   {labels, series: [{name, values, color}], money, across}. A table with the same numbers stands beside each. */
(() => {
  "use strict";
  const made = [];

  // A colour by its name in tokens.css, as the theme has it now.
  function color(name) {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  function short(value, isMoney) {
    if (isMoney) return value === 0 ? "$0" : value < 0.01 ? `$${value.toPrecision(2)}` : `$${value.toFixed(2)}`;
    return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  }

  function draw(canvas) {
    const data = JSON.parse(document.getElementById(canvas.dataset.chart).textContent);
    const text = color("ink-3");
    const line = color("line");
    const values = { ticks: { color: text, maxTicksLimit: 5, callback: (value) => short(value, data.money) }, grid: { color: line }, border: { display: false }, beginAtZero: true, stacked: true };
    const names = { ticks: { color: text, autoSkip: true, maxRotation: 0 }, grid: { display: false }, border: { color: line }, stacked: true };
    return new Chart(canvas, {
      type: "bar",
      data: {
        labels: data.labels,
        datasets: data.series.map((series) => ({
          label: series.name,
          data: series.values,
          backgroundColor: color(series.color),
          borderRadius: 2,
          maxBarThickness: 28,
        })),
      },
      options: {
        animation: false,
        maintainAspectRatio: false,
        indexAxis: data.across ? "y" : "x",
        interaction: { mode: "index", intersect: false, axis: data.across ? "y" : "x" },
        scales: data.across ? { x: values, y: names } : { x: names, y: values },
        plugins: {
          legend: { display: data.series.length > 1, position: "bottom", labels: { color: text, boxWidth: 10, boxHeight: 10 } },
          tooltip: {
            backgroundColor: color("raised"), titleColor: color("ink"), bodyColor: color("ink-2"),
            borderColor: color("line-strong"), borderWidth: 1, padding: 10,
            callbacks: { label: (item) => `${item.dataset.label}: ${short(item.raw, data.money)}` },
          },
        },
      },
    });
  }

  function drawAll() {
    while (made.length) made.pop().destroy();
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Chart.defaults.font.size = 12;
    for (const canvas of document.querySelectorAll("canvas[data-chart]")) made.push(draw(canvas));
  }

  drawAll();
  document.addEventListener("console:theme", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
