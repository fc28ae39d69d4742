export { kyselyTransactions } from "../storage/drivers/kysely.ts";
