import { advice, bytesText, type Diagnosis, fine, problem } from "./diagnosis.ts";
import { remedies } from "./statements.ts";

/** An object of the schema with a text that describes its definition. */
export interface SchemaPart {
  readonly kind: "table" | "column" | "index" | "constraint" | "function" | "trigger" | "view" | "sequence";
  readonly name: string;
  readonly shape: string;
  /** True for an index whose build failed. */
  readonly invalid?: boolean;
}

const WHY_DRIFT = "Statements fail, get slow, or write what should have been refused.";
const MAX_FINDINGS = 20;

/** Compares the live schema with the one that the migrations create. Pure. */
export function judgeDrift(
  live: readonly SchemaPart[],
  wanted: readonly SchemaPart[],
  schema: string,
): readonly Diagnosis[] {
  const indexByName = (parts: readonly SchemaPart[]) =>
    new Map(parts.map((part) => [`${part.kind} ${part.name}`, part]));
  const [there, expected] = [indexByName(live), indexByName(wanted)];
  const missing = wanted.filter(({ kind, name }) => !there.has(`${kind} ${name}`));
  const changed = wanted.filter(({ kind, name, shape }) => {
    const found = there.get(`${kind} ${name}`);
    return found !== undefined && found.shape !== shape;
  });
  const invalid = live.filter((part) => part.invalid === true);
  const extra = live.filter(({ kind, name }) => !expected.has(`${kind} ${name}`));
  const found = [
    ...invalid.map(({ name }) =>
      problem(
        "schema",
        `index ${name} is invalid`,
        "It is updated with every write, but no query uses it.",
        `reindex index concurrently ${schema}.${name};`,
      ),
    ),
    ...missing
      .slice(0, MAX_FINDINGS)
      .map((part) =>
        problem("schema", `${part.kind} ${part.name} is missing`, WHY_DRIFT, remedy(part, schema)),
      ),
    ...changed
      .slice(0, MAX_FINDINGS)
      .map((part) =>
        problem(
          "schema",
          `${part.kind} ${part.name} is not what the migrations make${shapeText(there.get(`${part.kind} ${part.name}`)?.shape)}`,
          WHY_DRIFT,
          restoreText(part, schema),
        ),
      ),
    ...(extra.length === 0
      ? []
      : [
          advice(
            "schema",
            `${extra.length} object(s) that no migration created: ${extra
              .slice(0, 5)
              .map(({ kind, name }) => `${kind} ${name}`)
              .join(", ")}`,
            "A later migration may use the name, and an additional index slows down every write.",
            "Keep your own objects in another schema.",
          ),
        ]),
  ];
  return found.length > 0 ? found : [fine("schema", `${wanted.length} parts are what the migrations make`)];
}

// An index of a partitioned table cannot be built concurrently, and must include all partitions.
function remedy({ kind, name, shape }: SchemaPart, schema: string): string {
  if (kind === "index") {
    const made = shape.includes(" ON ONLY ")
      ? shape.replace(" ON ONLY ", " ON ")
      : shape.replace(/^CREATE (UNIQUE )?INDEX/, "CREATE $1INDEX CONCURRENTLY");
    return `${made.replace(/ ON (\w+)/, ` ON ${schema}.$1`)};`;
  }
  const text = "`sagabox migrate sql` prints what makes it";
  return `Make ${kind} ${name} of schema ${schema} again: ${text}.`;
}

// The shape of a function is only a hash of its body, which is not worth printing.
const FINGERPRINT = /^[0-9a-f]{32}$/;

function shapeText(shape = ""): string {
  return FINGERPRINT.test(shape) ? "" : `: ${shape}`;
}

function restoreText({ kind, name, shape }: SchemaPart, schema: string): string {
  const wanted = FINGERPRINT.test(shape) ? "" : ` It should be: ${shape}.`;
  return (
    `It was changed by hand, or a migration changed after it was applied.${wanted} Find ${kind} ${name} in ` +
    `\`sagabox migrate sql --schema ${schema}\` and make it so again, as the owner.`
  );
}

export function judgeMigrations(applied: number, pending: readonly string[]): readonly Diagnosis[] {
  if (pending.length === 0) return [fine("migrations", `${applied} applied, none pending`)];
  return [
    problem(
      "migrations",
      `${pending.length} pending: ${pending.join(", ")}`,
      "This version does not run on the schema as it is.",
      "sagabox migrate up",
    ),
  ];
}

export interface RightFacts {
  readonly user_name: string;
  readonly roles: readonly string[];
  readonly superuser: boolean;
}

export function judgeRights({ user_name: user, roles, superuser }: RightFacts): readonly Diagnosis[] {
  if (roles.length > 0) {
    const all = superuser ? " (a superuser)" : "";
    return [fine("rights", `"${user}"${all} can work as ${roles.join(", ")}`)];
  }
  return [
    problem(
      "rights",
      `"${user}" has the rights of no role`,
      "Nothing of sagabox can run as this user.",
      `sagabox roles sql | psql -- then, for example: grant sagabox_relay to "${user}";`,
    ),
  ];
}

export interface TableFacts {
  readonly name: string;
  readonly live: number;
  readonly dead: number;
  readonly size: number;
  readonly unlogged: boolean;
  readonly vacuum_off: boolean;
  readonly tuned: boolean;
  readonly vacuumed_at: string | null;
}

/** Fewer dead rows than this are not reported. */
const MIN_DEAD_ROWS = 20_000;

export function judgeTables(tables: readonly TableFacts[]): readonly Diagnosis[] {
  const found = tables.flatMap(
    ({ name, live, dead, size, unlogged, vacuum_off: off, tuned, vacuumed_at: at }) => [
      ...(unlogged
        ? [
            problem(
              "tables",
              `${name} is unlogged`,
              "After a crash of the server the table is empty: committed messages are lost.",
              remedies.logged(name),
            ),
          ]
        : []),
      ...(off
        ? [
            problem(
              "tables",
              `autovacuum is switched off for ${name}`,
              "Dead rows pile up and every read gets slower.",
              remedies.vacuumAgain(name),
            ),
          ]
        : []),
      ...(!tuned && !off
        ? [
            advice(
              "tables",
              `${name} has lost its autovacuum settings`,
              "With the server's defaults vacuum comes too late for a table whose rows live for milliseconds.",
              remedies.vacuumSettings(name),
            ),
          ]
        : []),
      ...(dead >= MIN_DEAD_ROWS && dead > live
        ? [
            advice(
              "tables",
              `${name} holds ${dead} dead and ${live} live rows in ${bytesText(size)}, vacuumed ${at ?? "never"}`,
              "Reads walk over the dead ones. Usually a long transaction keeps vacuum from removing them.",
              `vacuum (analyze) ${name}; -- after ending what is listed under long transactions`,
            ),
          ]
        : []),
    ],
  );
  return found.length > 0 ? found : [fine("tables", `${tables.length} busy tables are tidy`)];
}

export interface PartitionFacts {
  readonly missing: readonly string[];
  readonly strays: readonly string[];
}

export function judgePartitions({ missing, strays }: PartitionFacts): readonly Diagnosis[] {
  const found = [
    ...(missing.length === 0
      ? []
      : [
          problem(
            "partitions",
            `missing for the coming days: ${missing.join(", ")}`,
            "No upkeep runs. Rows go to the default partition, and old days are never dropped.",
            "Run a worker with the part upkeep as the owner of the tables, or once: sagabox migrate up",
          ),
        ]),
    ...(strays.length === 0
      ? []
      : [
          advice(
            "partitions",
            `rows are stored in ${strays.join(", ")}`,
            "Their day had no partition; upkeep moves them when the day is over.",
            "Run a worker with the part upkeep as the owner of the tables.",
          ),
        ]),
  ];
  return found.length > 0 ? found : [fine("partitions", "there for the coming days, nothing astray")];
}
