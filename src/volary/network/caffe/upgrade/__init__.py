"""Old files in today's form: layers of 2013 (V0) and 2014 (V1), inputs and transformations where they used to be."""
