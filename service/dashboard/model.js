// What a job published: coefficients with error bars, a network, a centre, or a certificate.
import { coefficients } from "./plots.js";
import { card, empty, h, link, num, plural, table } from "./ui.js";

const CLASSES_SHOWN = 8;
const help = (...text) => h("p", { class: "help" }, ...text);

export function modelCard(model, plan, described) {
  if (model.certificate) return certificateCard(model.certificate);
  if (model.location) return centreCard(model);
  if (model.network) return networkCard(model);
  return coefficientsCard(model, plan, described.weight_noise);
}

function certificateCard(certificate) {
  const row = (name, value, noise) =>
    value === null ? [name, "–", "–"] : [name, num(value), num(noise)];
  const {
    gradient_norm: length,
    projected_gradient_norm: projected,
    noise_norm: noise,
  } = certificate;
  const rows = [
    row("Length of the gradient", length, noise),
    row("Length of the projected gradient", projected, noise),
    row("Stationarity gap over the set", certificate.stationarity_gap, certificate.gap_noise),
  ];
  const caption = "How near the model is to a stationary point";
  const ball = certificate.radius
    ? `, over a ball of radius ${num(certificate.radius)} about it`
    : "";
  return card(
    "Stationarity",
    table(caption, ["measure", "value", "noise"], rows, { numbers: [1, 2] }),
    help(
      "Of the model of ",
      link(certificate.of, `#/jobs/${certificate.of}`),
      `${ball}. Noise moves a value by at most the number beside it, `,
      `with probability ${num(certificate.confidence)}.`,
    ),
  );
}

function centreCard(model) {
  return card(
    "Centre",
    coefficients(model.feature_names_in_, model.location, null),
    help("In the columns’ own units."),
  );
}

function networkCard(model) {
  const { hidden, outer } = model.network;
  const names = namesOf(model);
  const pathsFrom = (column) =>
    hidden.reduce((sum, unit, k) => sum + Math.abs(outer[k] * unit[column]), 0);
  return card(
    "Model",
    coefficients(
      names,
      names.map((_, column) => pathsFrom(column)),
      null,
    ),
    help(
      `A network of ${plural(outer.length, "hidden unit")} has no coefficients. Shown is how much `,
      "weight leads from a feature to the output through all units; download the model for the weights.",
    ),
  );
}

function coefficientsCard(model, plan, noise) {
  const names = namesOf(model);
  const bars = errorBars(names, plan, noise);
  if (!Array.isArray(model.intercept_)) {
    const values = [model.intercept_, ...model.coef_];
    return card("Model", coefficients(names, values, bars), aboutNoise(model, noise));
  }
  const perClass = model.classes_
    .slice(0, CLASSES_SHOWN)
    .flatMap((name, k) => [
      h("h3", null, name),
      coefficients(names, [model.intercept_[k], ...model.coef_[k]], bars),
    ]);
  const more = model.classes_.length > CLASSES_SHOWN;
  return card(
    "Model",
    ...perClass,
    more ? empty("More classes", "Download the model to see them all.") : null,
    aboutNoise(model, noise),
  );
}

const namesOf = (model) => ["(intercept)", ...model.feature_names_in_];

// The intercept's weight belongs to a column of a constant, so its noise is larger by that constant.
function errorBars(names, plan, noise) {
  if (noise === null) return null;
  const { feature_step: step, linf_units: units } = plan.facts;
  return names.map((_, i) => (i === 0 && step ? noise * step * units : noise));
}

function aboutNoise(model, noise) {
  const binary = !Array.isArray(model.intercept_) && model.classes_;
  return help(
    noise === null
      ? "Its noise went through several steps or an objective, so no single error bar is known."
      : `Error bars: one standard deviation of the noise (${num(noise)} in a feature’s coefficient), ` +
          "before projection onto the set.",
    binary ? ` Positive coefficients favour “${model.classes_[1]}”.` : "",
  );
}
