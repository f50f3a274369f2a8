// What the node programs share; `scenes.py` is its twin and says more.

const LIMIT = 45_000;

export class Scene {
  constructor(url, { scene, tool, arguments: given = {}, url: own = url }, options) {
    Object.assign(this, { url: own, scene, tool, arguments: given, options });
    this.statuses = [];
    this.facts = { dialect: "none", asked: 0, progress: 0 };
  }

  /** Keep a status where it differs from the last one. */
  saw(status) {
    if (this.statuses.at(-1) !== status) this.statuses.push(status);
  }

  asked() {
    this.facts.asked += 1;
  }

  step() {
    this.facts.progress += 1;
  }

  tell(facts) {
    Object.assign(this.facts, facts);
  }

  result({ content, isError = false }) {
    const texts = content.filter((block) => block.type === "text").map((block) => block.text);
    this.tell({ result: texts.join("\n"), is_error: isError });
  }
}

/** Return values for the required properties of a form, a name for every text. */
export function answer(schema) {
  const { properties = {}, required = [] } = schema ?? {};
  const value = ({ enum: choices, type }) =>
    choices?.[0] ?? { boolean: true, integer: 1, number: 1, array: [] }[type] ?? "Ada";
  return Object.fromEntries(required.map((name) => [name, value(properties[name] ?? {})]));
}

export const SAMPLED = {
  role: "assistant",
  model: "test",
  content: { type: "text", text: "In short: good." },
};

function failure(error) {
  const cause = error.cause ? `: ${error.cause.message}` : "";
  const { code = error.cause?.code ?? null } = error;
  return { kind: error.constructor.name, code, message: `${error.message}${cause}`.slice(0, 500) };
}

async function one(play, scene) {
  let alarm;
  const limit = new Promise((_, refuse) => {
    alarm = setTimeout(() => refuse(new Error("no end in time")), LIMIT);
  });
  let error;
  try {
    await Promise.race([play(scene), limit]);
  } catch (thrown) {
    error = failure(thrown);
  }
  clearTimeout(alarm);
  const told = { ok: !error, ...scene.facts, statuses: scene.statuses, ...(error && { error }) };
  return [scene.scene, told];
}

/** Play the scenes of the command line, each on a connection of its own, and write the accounts. */
export async function main(play) {
  const [url, plan, ...options] = process.argv.slice(2);
  const scenes = JSON.parse(plan).map((entry) => new Scene(url, entry, options));
  const accounts = Object.fromEntries(await Promise.all(scenes.map((scene) => one(play, scene))));
  process.stdout.write(`${JSON.stringify(accounts)}\n`, () => process.exit(0));
}
