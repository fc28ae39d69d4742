export { knexTransactions } from "../storage/drivers/knex.ts";
