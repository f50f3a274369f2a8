// Packages that the programs here import are looked for in the npm prefix that PACKAGES names.
import { registerHooks } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const here = new URL(".", import.meta.url).href;
const parentURL = pathToFileURL(join(process.env.PACKAGES, "program.mjs")).href;

registerHooks({
  resolve(name, context, next) {
    const ours = name.startsWith("@") && context.parentURL?.startsWith(here);
    return next(name, ours ? { ...context, parentURL } : context);
  },
});
