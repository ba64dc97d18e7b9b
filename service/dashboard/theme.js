// Before anything is drawn: the theme that was chosen here, if one was.
try {
  const chosen = localStorage.getItem("epsilond.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  /* storage is closed: the system's theme it is */
}
