import { SagaboxError } from "../../errors/index.ts";
import { wholeNumber } from "../../options/index.ts";
import { randomToken } from "../../runtime/index.ts";
import { migrateUp, quoteSchema, type Database } from "../../storage/index.ts";
import { measure, openConnections, type Connections } from "./measure.ts";
import { measureHandling } from "./measure-handling.ts";
import { propose, type Handling, type Machine, type Measurement, type Proposal } from "./propose.ts";
import { scratchStatements, serverStatements } from "./statements.ts";

// Both reach beyond the defaults (500 and 10), which could not be found too small otherwise.
export const tuneBatchSizes = [10, 50, 100, 200, 500, 1_000, 2_000] as const;
export const tuneHandlers = [1, 5, 10, 20, 40] as const;
export const tuneConcurrencies = [1, 2, 4, 8] as const;

/** Three connections for each relay that works at a time: one writes, one reads, one settles; one for each handler. */
export const tuneConnections = Math.max(Math.max(...tuneConcurrencies) * 3, ...tuneHandlers);

export interface TuneOptions {
  /** How long all measurements take together. Default 60 seconds. */
  readonly seconds?: number;
  readonly batchSizes?: readonly number[];
  /** Relays at a time. */
  readonly concurrencies?: readonly number[];
  /** Handlers at a time. More than half of the server's connections are never taken. */
  readonly handlers?: readonly number[];
  /** Of the database server. */
  readonly cores: number;
  /** Whether `cores` was given by somebody who knows. */
  readonly coresKnown?: boolean;
  readonly signal?: AbortSignal;
  readonly onMeasured?: (done: number, total: number, last: Measurement | Handling) => void;
}

export interface TuneReport {
  /** The scratch schema, which is gone again. */
  readonly schema: string;
  /** False when it was stopped before its end. */
  readonly finished: boolean;
  readonly measurements: readonly Measurement[];
  readonly handling: readonly Handling[];
  readonly proposals: readonly Proposal[];
}

/** Measures on the server itself, in a schema of its own that is dropped at the end, whatever happens. */
export async function tune(database: Database, options: TuneOptions): Promise<TuneReport> {
  const { batchSizes = tuneBatchSizes, concurrencies = tuneConcurrencies, signal } = options;
  const seconds = wholeNumber("tune: seconds", options.seconds ?? 60, { min: 1, max: 3_600 });
  const server = await readServer(database);
  const schema = `sagabox_tune_${randomToken()
    .replaceAll(/[^a-z0-9]/gi, "")
    .toLowerCase()
    .slice(0, 12)}`;
  const settings = concurrencies.flatMap((concurrency) =>
    batchSizes.map((batchSize) => ({ batchSize, concurrency })),
  );
  const most = Math.min(database.size, Math.floor(server.usable / 2));
  const handlers = (options.handlers ?? tuneHandlers).filter((count) => count <= most);
  const total = settings.length + handlers.length;
  const isStopped = (): boolean => signal?.aborted === true;
  const forMs = (seconds * 1_000) / total;
  const measurements: Measurement[] = [];
  const handling: Handling[] = [];
  const sql = scratchStatements(quoteSchema(schema));
  const connections: Connections[] = [];
  try {
    await migrateUp(database, schema);
    await database.run(sql.own);
    connections.push(...(await openConnections(database, Math.max(...concurrencies))));
    for (const setting of settings) {
      if (isStopped()) break;
      const measured = await measure(database, connections, schema, { ...setting, forMs, signal });
      if (isStopped()) break; // cut short, so it says nothing
      measurements.push(measured);
      options.onMeasured?.(measurements.length, total, measured);
    }
    releaseConnections(connections.splice(0));
    for (const concurrency of handlers) {
      if (isStopped()) break;
      const measured = await measureHandling(database, schema, { concurrency, forMs, signal });
      if (isStopped()) break;
      handling.push(measured);
      options.onMeasured?.(measurements.length + handling.length, total, measured);
    }
  } finally {
    releaseConnections(connections);
    await database.run(sql.drop);
  }
  const finished = measurements.length + handling.length === total;
  const machine: Machine = {
    cores: options.cores,
    sameMachine: options.coresKnown === true || server.local,
    usableConnections: server.usable,
  };
  return { schema, finished, measurements, handling, proposals: propose(measurements, handling, machine) };
}

function releaseConnections(connections: readonly Connections[]): void {
  for (const { reading, settling } of connections) {
    reading.release(true);
    settling.release(true);
  }
}

interface Server {
  readonly allowed: boolean;
  readonly user_name: string;
  readonly local: boolean;
  readonly usable: number;
}

async function readServer(database: Database): Promise<Server> {
  const { rows } = await database.run<Server>(serverStatements.mayCreate);
  const [server] = rows;
  if (server?.allowed === true) return server;
  throw new SagaboxError(
    "STORAGE_PERMISSION_DENIED",
    `Database role "${server?.user_name ?? "?"}" may not create schemas in this database, and measuring needs one of its own. ` +
      "Connect as a role that may, or measure on a copy of the server.",
  );
}
