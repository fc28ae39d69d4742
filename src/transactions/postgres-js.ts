export { postgresJsTransactions } from "../storage/drivers/postgres-js.ts";
