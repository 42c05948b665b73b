// Validates exported state machines of AWS: node validate.mjs VALIDATOR FILE… ; prints those that are not valid.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [validator, ...files] = process.argv.slice(2);
const loaded = await import(pathToFileURL(validator).href);
const validate = typeof loaded.default === "function" ? loaded.default : loaded.default.default;
for (const file of files) {
  const { isValid, errors } = validate(JSON.parse(readFileSync(file, "utf8")), { checkPaths: true, checkArn: true });
  if (!isValid) console.log(file, JSON.stringify(errors));
}
