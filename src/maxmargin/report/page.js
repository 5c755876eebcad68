// Sort a table by a click on a column; filter its rows by the search field.
for (const box of document.querySelectorAll(".sorted")) {
  const body = box.querySelector("tbody"), heads = [...box.querySelectorAll("th")];
  box.querySelector("input").addEventListener("input", event => {
    const wanted = event.target.value.toLowerCase();
    for (const row of body.rows)
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  });
  heads.forEach((head, k) => head.querySelector("button")?.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[k].textContent, figure = row => parseFloat(key(row));
    const order = (a, b) => isNaN(figure(a)) || isNaN(figure(b))
      ? key(a).localeCompare(key(b)) : figure(a) - figure(b);
    [...body.rows].sort((a, b) => down ? order(b, a) : order(a, b)).forEach(row => body.append(row));
  }));
}
