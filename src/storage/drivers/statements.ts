import { statement } from "../statement.ts";

export const setConfig = statement("sagabox.set_config", "select set_config($1::text, $2::text, false)");
