// Follows a session: asks now and then whether anything was written, and fetches the page anew if so.
"use strict";

(() => {
  const EVERY = 2000; // milliseconds
  const main = document.getElementById("content");
  const said = document.getElementById("live");
  if (!main || !said || !main.dataset.pulse) return;

  const query = main.dataset.session === undefined ? "" : "?s=" + encodeURIComponent(main.dataset.session);

  // A form in which something stands that was not there at first: it would be lost.
  const isFilledIn = (form) => [...form.elements].some((one) => {
    if (one.matches("select")) {
      const first = [...one.options].findIndex((option) => option.defaultSelected);
      return one.selectedIndex !== Math.max(first, 0);
    }
    return one.matches("[type=checkbox], [type=radio]")
      ? one.checked !== one.defaultChecked
      : one.matches("input, textarea") && one.value !== one.defaultValue;
  });

  const isBusy = () => {
    const active = document.activeElement;
    if (active && main.contains(active) && active.matches("input, textarea, select")) return true;
    if ([...main.querySelectorAll("form[method=post]")].some(isFilledIn)) return true;
    const selection = document.getSelection();
    return selection !== null && !selection.isCollapsed && main.contains(selection.anchorNode);
  };

  const opened = () => [...main.querySelectorAll("details")].map((one) => one.open);

  const show = (page) => {
    const fresh = new DOMParser().parseFromString(page, "text/html").getElementById("content");
    if (!fresh || !fresh.dataset.pulse) return;
    const open = opened();
    const active = document.activeElement;
    const address = active && main.contains(active) ? active.getAttribute("href") : null;
    main.replaceChildren(...fresh.childNodes);
    main.dataset.pulse = fresh.dataset.pulse;
    const details = [...main.querySelectorAll("details")];
    if (details.length === open.length) details.forEach((one, place) => { one.open = open[place]; });
    if (address !== null) {
      const again = [...main.querySelectorAll("a")].find((one) => one.getAttribute("href") === address);
      if (again) again.focus({ preventScroll: true });
    }
    said.textContent = "Updated " + new Date().toISOString().slice(11, 19);
  };

  const look = async () => {
    const answer = await fetch("/pulse" + query, { cache: "no-store" });
    if (!answer.ok || (await answer.text()) === main.dataset.pulse) return;
    if (isBusy()) {
      said.textContent = "Something new was written. It shows when you leave the field and send what you filled in, or reload.";
      return;
    }
    const page = await fetch(location.href, { cache: "no-store" });
    if (page.ok) show(await page.text());
  };

  const again = async () => {
    try {
      if (!document.hidden) await look();
    } catch {
      said.textContent = "The server does not answer; this page may be out of date.";
    }
    setTimeout(again, EVERY);
  };
  setTimeout(again, EVERY);
})();
