import { randomUUID } from "node:crypto";
import pg from "pg";
import { createBus, type Bus } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { readHistory } from "../follow-saga.ts";
import { held } from "./partners.ts";
import { flightService, hotelService } from "./services.ts";
import { bookTrip } from "./trip-saga.ts";

const given = process.env["DATABASE_URL"];
const server =
  given === undefined ? await startEmbeddedPostgres({ dataDir: ".sagabox/tutorial" }) : undefined;
const pool = new pg.Pool({ connectionString: server?.url ?? given, max: 60 });
await pool.query(`
  create table if not exists trip (id text not null, parts text not null);
  create table if not exists seat (trip_id text not null);
  create table if not exists room (trip_id text not null);
  truncate trip, seat, room`);

const openBus = (service: string): Bus => createBus({ service, database: pool, log: "error" });
const [agency, flights, hotels] = [openBus("agency"), openBus("flights"), openBus("hotels")];
flightService(flights);
hotelService(hotels);
agency.register(bookTrip);
await agency.migrate();
for (const bus of [agency, flights, hotels]) await bus.run();

async function book(traveller: string, wish: { nights: number; insured: boolean }): Promise<void> {
  const trip = { tripId: randomUUID(), traveller, to: "Lisbon", ...wish };
  const { sagaId } = await agency.transaction((tx) => agency.start(tx, bookTrip, trip));
  const { status } = await agency.sagas.result(bookTrip, sagaId, { timeout: "1m" });
  console.log(`The trip of ${traveller} is ${status}:`);
  // What runs side by side ends in any order; the names decide what is printed first.
  for (const line of (await readHistory(agency, sagaId)).toSorted()) console.log(`  ${line}`);
}

await book("ann", { nights: 7, insured: true });
await book("bob", { nights: 99, insured: false });

const { rows } = await pool.query<{ parts: string }>("select parts from trip");
for (const { parts } of rows) console.log(`Confirmed: ${parts}.`);
const kept = await pool.query("select 1 from seat union all select 1 from room");
console.log(`Kept by airline and hotel: ${kept.rowCount}. Kept by car rental and taxis: ${held()}.`);

for (const bus of [agency, flights, hotels]) await bus.stop();
await pool.end();
await server?.stop();
