import { SagaboxError } from "../../errors/index.ts";
import { wholeNumber } from "../../options/index.ts";
import { randomToken } from "../../runtime/index.ts";
import { migrateUp, quotedSchema, type Database } from "../../storage/index.ts";
import { measure, openConnections, type Connections } from "./measure.ts";
import { propose, type Machine, type Measurement, type Proposal } from "./propose.ts";
import { scratchStatements, serverStatements } from "./statements.ts";

export const tuneBatchSizes = [10, 50, 100, 200, 500] as const;
export const tuneConcurrencies = [1, 2, 4, 8] as const;

/** Three connections for each that works at a time: one writes, one reads, one settles. */
export const tuneConnections = Math.max(...tuneConcurrencies) * 3;

export interface TuneOptions {
  /** How long all measurements take together. Default 60 seconds. */
  readonly seconds?: number;
  readonly batchSizes?: readonly number[];
  readonly concurrencies?: readonly number[];
  /** Of the database server. */
  readonly cores: number;
  /** Whether `cores` was given by somebody who knows. */
  readonly coresKnown?: boolean;
  readonly signal?: AbortSignal;
  readonly onMeasured?: (done: number, total: number, last: Measurement) => void;
}

export interface TuneReport {
  /** The scratch schema, which is gone again. */
  readonly schema: string;
  /** False when it was stopped before its end. */
  readonly finished: boolean;
  readonly measurements: readonly Measurement[];
  readonly proposals: readonly Proposal[];
}

/** Measures on the server itself, in a schema of its own that is dropped at the end, whatever happens. */
export async function tune(database: Database, options: TuneOptions): Promise<TuneReport> {
  const { batchSizes = tuneBatchSizes, concurrencies = tuneConcurrencies, signal } = options;
  const seconds = wholeNumber("tune: seconds", options.seconds ?? 60, { min: 1, max: 3_600 });
  const server = await serverOf(database);
  const schema = `sagabox_tune_${randomToken()
    .replaceAll(/[^a-z0-9]/gi, "")
    .toLowerCase()
    .slice(0, 12)}`;
  const settings = concurrencies.flatMap((concurrency) =>
    batchSizes.map((batchSize) => ({ batchSize, concurrency })),
  );
  const stopped = (): boolean => signal?.aborted === true;
  const forMs = (seconds * 1_000) / settings.length;
  const measurements: Measurement[] = [];
  const sql = scratchStatements(quotedSchema(schema));
  let connections: readonly Connections[] = [];
  try {
    await migrateUp(database, schema);
    await database.run(sql.own);
    connections = await openConnections(database, Math.max(...concurrencies));
    for (const setting of settings) {
      if (stopped()) break;
      const measured = await measure(database, connections, schema, { ...setting, forMs, signal });
      if (stopped()) break; // cut short, so it says nothing
      measurements.push(measured);
      options.onMeasured?.(measurements.length, settings.length, measured);
    }
  } finally {
    for (const { reading, settling } of connections) {
      reading.release(true);
      settling.release(true);
    }
    await database.run(sql.drop);
  }
  const finished = measurements.length === settings.length;
  const machine: Machine = {
    cores: options.cores,
    sameMachine: options.coresKnown === true || server.local,
    usableConnections: server.usable,
  };
  return { schema, finished, measurements, proposals: propose(measurements, machine) };
}

interface Server {
  readonly allowed: boolean;
  readonly user_name: string;
  readonly local: boolean;
  readonly usable: number;
}

async function serverOf(database: Database): Promise<Server> {
  const { rows } = await database.run<Server>(serverStatements.mayCreate);
  const [server] = rows;
  if (server?.allowed === true) return server;
  throw new SagaboxError(
    "STORAGE_PERMISSION_DENIED",
    `Database role "${server?.user_name ?? "?"}" may not create schemas in this database, and measuring needs one of its own. ` +
      "Connect as a role that may, or measure on a copy of the server.",
  );
}
