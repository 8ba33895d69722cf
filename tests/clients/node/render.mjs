// Renders Go templates with Go's own engine: {template, values} as JSON on stdin, the text on stdout.
import { readFileSync } from "node:fs";
import { parse } from "@evertdespiegeleer/go-template";

const { template, values } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(await parse(template, values));
process.exit(0);
