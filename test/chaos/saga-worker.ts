// A worker of sagas and of the participants that carry their commands out. Its instructions are in CHAOS.
import pg from "pg";
import { createBus } from "sagabox";
import { signedUrl, createTransport, type ChildOptions } from "./child-contract.ts";
import { addParticipants, tripSagas } from "./trip-saga.ts";

const options = JSON.parse(process.env["CHAOS"] ?? "{}") as ChildOptions;
const database = signedUrl(options.url, options.id);
const outside = new pg.Pool({ connectionString: database, max: 5 });
outside.on("error", () => undefined);
const bus = createBus({
  service: "trips",
  worker: options.id,
  database,
  lease: options.leaseMs,
  sagas: { pollInterval: 100 },
  ...createTransport(options),
});
const { hasty, patient } = tripSagas(outside, options.id);
bus.register(hasty, patient);
addParticipants(bus, options.id);

process.once("SIGTERM", () => {
  void bus.stop().then(async ({ clean }) => {
    await outside.end();
    process.exitCode = clean ? 0 : 1;
  });
});
await bus.run();
process.stdout.write("ready\n");
