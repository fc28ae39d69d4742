import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const here = import.meta.dirname;

export const kafkaVersion = "4.3.0";

/** Where the jars lie; SAGABOX_KAFKA_JARS names another folder. */
function jarsFolder(): string {
  const cache = process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache");
  return process.env["SAGABOX_KAFKA_JARS"] ?? join(cache, "sagabox", `kafka-${kafkaVersion}`);
}

/** The folder with every jar of the broker, each checked; resolved by Maven the first time. Or what is missing. */
export async function kafkaJars(): Promise<{ readonly folder: string } | { readonly missing: string }> {
  if (!(await works("java", ["-version"])))
    return { missing: "Java 17 or newer (apt-get install default-jre)" };
  const folder = jarsFolder();
  if (existsSync(folder)) {
    const wrong = await firstWrongJar(folder);
    if (wrong === undefined) return { folder };
    throw new Error(`${wrong} in ${folder} is not what jars.sha256 says. Remove the folder and try again.`);
  }
  if (!(await works("mvn", ["-version"]))) return { missing: "Maven (apt-get install maven)" };
  await resolve(folder);
  return { folder };
}

// Resolved beside its place and moved there whole, so that two runs that start together do not meet half a folder.
async function resolve(folder: string): Promise<void> {
  await mkdir(dirname(folder), { recursive: true });
  const part = await mkdtemp(`${folder}.`);
  try {
    const goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", `-DoutputDirectory=${part}`];
    await run("mvn", ["-q", "-B", "-f", join(here, "pom.xml"), ...goal], { timeout: 600_000 });
    const wrong = await firstWrongJar(part);
    if (wrong !== undefined) throw new Error(`Maven brought ${wrong}, which is not what jars.sha256 says.`);
    await rename(part, folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
    });
  } finally {
    await rm(part, { recursive: true, force: true });
  }
}

async function firstWrongJar(folder: string): Promise<string | undefined> {
  const list = await readFile(join(here, "jars.sha256"), "utf8");
  const expected = new Map(
    list
      .trim()
      .split("\n")
      .map((line) => line.split(/\s+/).reverse() as [string, string]),
  );
  const found = (await readdir(folder)).filter((name) => name.endsWith(".jar"));
  for (const name of new Set([...expected.keys(), ...found])) {
    if (!found.includes(name)) return name;
    const digest = createHash("sha256").update(await readFile(join(folder, name)));
    if (digest.digest("hex") !== expected.get(name)) return name;
  }
  return undefined;
}

async function works(command: string, args: readonly string[]): Promise<boolean> {
  return run(command, args).then(
    () => true,
    () => false,
  );
}
