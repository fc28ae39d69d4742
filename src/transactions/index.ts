// The entries sagabox/drizzle, /kysely, /knex, /postgres-js, /prisma and /typeorm: each lets handlers, `tx` steps of sagas and
// `bus.transaction()` run in transactions of that library. How sagabox uses a library is described in storage/drivers.
export { drizzleTransactions } from "./drizzle.ts";
export { knexTransactions } from "./knex.ts";
export { kyselyTransactions } from "./kysely.ts";
export { postgresJsTransactions } from "./postgres-js.ts";
export { prismaTransactions } from "./prisma.ts";
export { typeOrmTransactions } from "./typeorm.ts";
