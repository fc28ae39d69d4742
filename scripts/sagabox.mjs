// npm run sagabox -- <command>: the command line from its sources. Without DATABASE_URL it talks to the database of a
// running `npm start`.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const left = join(import.meta.dirname, "..", ".sagabox", "shop.url");
if (!process.env.DATABASE_URL && !process.env.SAGABOX_DATABASE_URL && existsSync(left)) {
  process.env.DATABASE_URL = readFileSync(left, "utf8").trim();
}
await import("../src/cli/main.ts");
