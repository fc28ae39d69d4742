// npm run sagabox -- <command>: the command line from its sources. Without an address of its own it talks to the database of
// a running `npm start`; `dev` starts a server instead.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const left = join(import.meta.dirname, "..", ".sagabox", "shop.url");
const names = ["DATABASE_URL", "SAGABOX_DATABASE_URL", "DATABASE_URL_FILE", "SAGABOX_DATABASE_URL_FILE"];
const isNamed = names.some((name) => process.env[name]) || process.argv[2] === "dev";
if (!isNamed) {
  if (existsSync(left)) process.env.DATABASE_URL = readFileSync(left, "utf8").trim();
  else
    process.once("exit", (code) => {
      if (code !== 0)
        process.stderr.write("The shop of `npm start` is not running; its database is asked when it does.\n");
    });
}
await import("../src/cli/main.ts");
