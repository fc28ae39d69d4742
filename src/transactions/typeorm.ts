export { typeOrmTransactions } from "../storage/drivers/typeorm.ts";
